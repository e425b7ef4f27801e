"""What is done to a broker that must not fall: bad input, kills, and very many connections."""

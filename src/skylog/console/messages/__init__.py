"""Messages in the console: reading pieces of topics in bounded time and memory, and what is done with them.

Everything here blocks and runs in threads, but for `feed`, which carries results to the event loop. Knows no page.
"""

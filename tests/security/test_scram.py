"""SCRAM: the example of RFC 7677, our two sides against each other, and what attackers send."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from skylog.security import scram
from skylog.security.sasl import LoginError
from skylog.security.scram import Credential, Decoy, Mechanism, ScramExchange, ScramLogin

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
DECOY = Decoy(b"seed")
USERS = {("alice", each): Credential.of_password(each, "secret") for each in Mechanism}


def find(user: str, mechanism: Mechanism) -> Credential | None:
    return USERS.get((user, mechanism))


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skylog.security.scram.secrets.token_urlsafe", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored = Credential.of_salted(SHA_256, salt, scram.salted(SHA_256, "pencil", salt, 4096), 4096)
    server = ScramExchange(SHA_256, lambda *_: stored, DECOY)
    first = server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    final += b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.respond(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.identity is not None
    assert server.identity.user == "user"


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_both_sides_prove_that_they_know_the_password(mechanism: Mechanism) -> None:
    server, client = ScramExchange(mechanism, find, DECOY), ScramLogin(mechanism, "alice", "secret")
    client.verify(server.respond(client.final(server.respond(client.first()))))
    assert server.identity is not None
    assert server.identity.user == "alice"
    with pytest.raises(LoginError, match="impostor"):
        client.verify(b"v=" + base64.b64encode(bytes(64)))


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("nobody", "")])
def test_a_wrong_password_and_an_unknown_user_look_the_same(user: str, password: str) -> None:
    server, client = ScramExchange(SHA_256, find, DECOY), ScramLogin(SHA_256, user, password)
    proof = client.final(server.respond(client.first()))
    with pytest.raises(LoginError, match="invalid credentials"):
        server.respond(proof)
    assert server.identity is None


def test_the_salt_of_an_unknown_user_depends_on_the_seed_the_name_and_the_mechanism_only() -> None:
    def challenge(mechanism: Mechanism, name: str, decoy: Decoy) -> str:
        answer = ScramExchange(mechanism, find, decoy).respond(f"n,,n={name},r=x".encode())
        return answer.decode().partition(",s=")[2]

    same = {challenge(SHA_256, "nobody", Decoy(b"seed", 26, 8192)) for _ in range(3)}
    assert len(same) == 1
    salt, iterations = same.pop().split(",i=")
    assert (len(base64.b64decode(salt)), iterations) == (26, "8192")
    others = [(SHA_512, "nobody", b"seed"), (SHA_256, "somebody", b"seed"), (SHA_256, "nobody", b"other")]
    assert salt not in {challenge(kind, name, Decoy(seed, 26, 8192)).split(",")[0] for kind, name, seed in others}


def test_a_recorded_login_cannot_be_replayed() -> None:
    server, client = ScramExchange(SHA_512, find, DECOY), ScramLogin(SHA_512, "alice", "secret")
    first = client.first()
    final = client.final(server.respond(first))
    server.respond(final)
    with pytest.raises(LoginError):
        server.respond(final)
    again = ScramExchange(SHA_512, find, DECOY)
    again.respond(first)
    with pytest.raises(LoginError):
        again.respond(final)
    assert again.identity is None


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"n,,n=alice",
        b"n,,r=x,n=alice",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=a=b,r=x",
        b"n,,n=a=2cb,r=x",
    ],
)
def test_a_malformed_first_message_is_refused(token: bytes) -> None:
    with pytest.raises(LoginError):
        ScramExchange(SHA_256, find, DECOY).respond(token)


@pytest.mark.parametrize("proof", ["", "AAAA", "====", "A" * 43 + "="])
def test_a_malformed_proof_is_refused(proof: str) -> None:
    server = ScramExchange(SHA_256, find, DECOY)
    nonce = server.respond(b"n,,n=alice,r=x").decode().partition(",")[0]
    with pytest.raises(LoginError):
        server.respond(f"c=biws,{nonce},p={proof}".encode())


@pytest.mark.parametrize(
    "rest",
    [
        "s=AAAA,i=1000",
        "s=AAAA,i=100001",
        "s=AAAA,i=" + "9" * 5000,
        "s=AAA,i=4096",
        "s=AAAA",
        "s=\xff,i=4096",
        "i=4096",
    ],
)
def test_a_client_refuses_a_malformed_challenge(rest: str) -> None:
    client = ScramLogin(SHA_256, "alice", "secret")
    nonce = client.first().partition(b",r=")[2]
    with pytest.raises(LoginError):
        client.final(b"r=" + nonce + b"more," + rest.encode("latin-1"))
    for wrong in (nonce, b"other"):
        with pytest.raises(LoginError):
            client.final(b"r=" + wrong + b",s=AAAA,i=4096")
    assert client.final(b"r=" + nonce + b"more,s=AAAA,i=4096")


def test_names_with_commas_and_equal_signs() -> None:
    stored = Credential.of_password(SHA_256, "p")
    server, client = ScramExchange(SHA_256, lambda user, _: stored if user == "a,b=c" else None, DECOY), None
    client = ScramLogin(SHA_256, "a,b=c", "p")
    server.respond(client.final(server.respond(client.first())))
    assert server.identity is not None
    assert server.identity.user == "a,b=c"


def logged_in_with(nonce: Callable[[str], str]) -> bool:
    """Log in with the right password, and with a nonce that is made of the server's."""
    server, bare = ScramExchange(SHA_256, find, DECOY), "n=alice,r=mine"
    challenge = server.respond(f"n,,{bare}".encode()).decode()
    given, salt, iterations = (part[2:] for part in challenge.split(","))
    salted = scram.salted(SHA_256, "secret", base64.b64decode(salt), int(iterations))
    final = f"c=biws,r={nonce(given)}"
    client_key = SHA_256.hmac(salted, b"Client Key")
    signature = SHA_256.hmac(SHA_256.hash(client_key), f"{bare},{challenge},{final}".encode())
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    try:
        server.respond(f"{final},p={proof}".encode())
    except LoginError:
        return False
    return server.identity is not None


def test_a_client_must_repeat_the_nonce_or_do_it_like_an_older_librdkafka() -> None:
    assert logged_in_with(lambda nonce: nonce)
    assert logged_in_with(lambda nonce: "mine" + nonce)
    assert not logged_in_with(lambda nonce: "else" + nonce)
    assert not logged_in_with(lambda nonce: "else" + nonce[4:])
    assert not logged_in_with(lambda nonce: nonce[4:])
    assert not logged_in_with(lambda nonce: "mine")
    assert not logged_in_with(lambda nonce: "mine" + nonce[:-1] + "!")


def test_a_stored_credential_comes_back() -> None:
    stored = Credential.of_password(SHA_512, "p", 5000)
    assert Credential.from_value(stored.to_value()) == stored

"""Reads parts of topics in bounded time and memory, and searches, follows, exports, produces and replays messages.

Everything here blocks and runs in threads, except `feed`, which passes results to the event loop. Depends on no page.
"""

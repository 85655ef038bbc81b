"""Measuring a pair: with and without the drafter in turn, or a server that someone else runs."""

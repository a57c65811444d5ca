"""Tests of model.py: it accepts exactly the possible states."""

import sys
import pathlib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from model import Client, Step  # noqa: E402

A, B, C = (("c", "doc", number) for number in range(3))


class Adopt(unittest.TestCase):
    def client(self) -> Client:
        client = Client()
        client.send([Step({A: 1})])
        client.acknowledge()
        client.send([Step({B: 1}), Step({A: 2, C: 1})])
        return client

    def test_any_prefix_of_sent_steps_is_possible(self):
        for found in ({A: 1}, {A: 1, B: 1}, {A: 2, B: 1, C: 1}):
            self.assertIsNone(self.client().adopt(found), found)

    def test_other_states_are_impossible(self):
        for found in ({}, {B: 1}, {A: 1, C: 1}, {A: 2, B: 1}, {A: 2, C: 1}, {A: 1, B: 2}):
            self.assertIsNotNone(self.client().adopt(found), found)

    def test_any_part_of_a_group_is_possible(self):
        def client() -> Client:
            client = self.client()
            client.acknowledge()
            client.send([Step({A: None, B: 5, C: None}, group=True), Step({C: 9})])
            return client

        for found in ({A: 2, B: 1, C: 1}, {B: 1}, {A: 2, B: 5}, {B: 5}, {B: 5, C: 9}):
            self.assertIsNone(client().adopt(found), found)
        for found in ({A: 3, B: 5}, {A: 2, B: 5, C: 9}, {B: 6}):
            self.assertIsNotNone(client().adopt(found), found)


if __name__ == "__main__":
    unittest.main()

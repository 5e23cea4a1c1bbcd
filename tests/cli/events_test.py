"""TensorBoard's event file beside metrics.jsonl, decoded by the format's description alone."""
import json
import os
import shutil
import struct
import unittest

from cli_case import Case, LAYERS, SGD

EVENTS = "events.out.tfevents.steelyard"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """[(number, value)] of one protocol-buffer message."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            code, size = {1: ("<d", 8), 5: ("<f", 4)}[kind]
            value, at = struct.unpack_from(code, data, at)[0], at + size
        found.append((key >> 3, value))
    return found


def read_events(path):
    """[(wall_time, step, {tag: value})]; every checksum must hold."""
    with open(path, "rb") as file:
        data = file.read()
    at, messages = 0, []
    while at < len(data):
        (length, length_crc) = struct.unpack_from("<QI", data, at)
        body = data[at + 12:at + 12 + length]
        (body_crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert length_crc == masked(data[at:at + 8]) and body_crc == masked(body), at
        at += 16 + length
        messages.append(dict(fields(body)))
    assert messages[0][3] == b"brain.Event:2", messages[0]
    events = []
    for message in messages[1:]:
        values = [dict(fields(value)) for number, value in fields(message[5]) if number == 1]
        events.append((message[1], message[2], {value[1].decode(): value[2] for value in values}))
    return events


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Events(Case):
    more = ["--set", "train.checkpoint_every_steps=1", "--set", "train.keep_step_checkpoints=true",
            "--set", "train.tensorboard=true"]

    def measured(self, part, line):
        return {f"{part}/{name}": line[name] for name in ("loss", "top1", "top5", "precision", "recall", "f1")}

    def expected(self, run):
        """What the lines of metrics.jsonl say."""
        events = []
        with open(self.path(run, "metrics.jsonl")) as file:
            for line in map(json.loads, file):
                if line["type"] == "step":
                    values = {"train/loss": line["loss"], "train/lr": line["lr"]}
                elif line["type"] == "epoch":
                    values = {"train/epoch_loss": line["train_loss"], **self.measured("validation", line["validation"])}
                else:
                    values = self.measured("test", line)
                events.append((line["step"], {tag: single(value) for tag, value in values.items()}))
        return events

    def test_holds_what_the_lines_hold(self):
        recipe = self.recipe(LAYERS + SGD)
        self.train(recipe, "whole", *self.more)
        events = read_events(self.path("whole", EVENTS))
        self.assertEqual([(step, values) for _, step, values in events], self.expected("whole"))
        self.assertEqual(len(events), 5 + 6 + 1)
        times = [time for time, _, _ in events]
        self.assertEqual(times, sorted(times))
        self.train(recipe, "without")
        self.assertFalse(os.path.exists(self.path("without", EVENTS)))
        self.assertEqual(self.sha("without", "last.safetensors"), self.sha("whole", "last.safetensors"))

    def test_a_resumed_run_appends(self):
        recipe = self.recipe(LAYERS + SGD)
        self.train(recipe, "whole", *self.more)
        whole = read_events(self.path("whole", EVENTS))
        for step in (5, 18, 27, 54):
            run = f"from-{step}"
            self.copy_as_stopped("whole", step, run)
            shutil.copy(self.path("whole", EVENTS), self.path(run))
            with open(self.path(run, EVENTS), "ab") as file:
                file.write(b"cut off")
            self.train(recipe, run, *self.more, "--resume")
            events = read_events(self.path(run, EVENTS))
            self.assertEqual([event[1:] for event in events], [event[1:] for event in whole], run)
            kept = sum(event[0] == before[0] for event, before in zip(events, whole))
            self.assertEqual(kept, sum(at < step or at == step and "train/loss" in values for _, at, values in whole))

    def test_a_divergence_is_an_event_without_values(self):
        self.fail_with(1, "non-finite", arguments=[
            "train", self.recipe(LAYERS + SGD), "--run-dir", "run", *self.more, "--set", "train.optimizer.lr=1000000"])
        lines, events = self.metrics("run"), read_events(self.path("run", EVENTS))
        self.assertEqual(lines[-1]["type"], "diverged")
        self.assertEqual((len(events), events[-1][1:]), (len(lines), (lines[-1]["step"], {})))

    def test_lost_events_come_back_from_the_lines(self):
        recipe = self.recipe(LAYERS + SGD)
        self.train(recipe, "run", *self.more)
        os.remove(self.path("run", EVENTS))
        shutil.copy(self.path("run", "step-30.safetensors"), self.path("run", "last.safetensors"))
        self.train(recipe, "run", *self.more, "--resume")
        self.assertEqual([event[1:] for event in read_events(self.path("run", EVENTS))], self.expected("run"))

    def test_a_while_without_events(self):
        recipe = self.recipe(LAYERS + SGD)
        def trained(epochs, events, *more):
            self.train(recipe, "run", "--set", f"train.epochs={epochs}", "--set", f"train.tensorboard={events}", *more)
        trained(2, "true")
        kept = read_events(self.path("run", EVENTS))[:-1]  # without the result on the test set
        trained(4, "false", "--resume")
        trained(6, "true", "--resume")
        events = read_events(self.path("run", EVENTS))
        self.assertEqual([event[1:] for event in events], self.expected("run"))
        self.assertEqual(events[:len(kept)], kept)


if __name__ == "__main__":
    unittest.main()

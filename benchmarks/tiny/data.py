#!/usr/bin/env python3
"""Makes the data of the presets tiny-*: arrays train.npz and test.npz in FOLDER/keyword, wake and anomaly.

usage: data.py FOLDER. Needs numpy, espeak-ng, and Debian's dataset-fashion-mnist.

keyword: ten words, other words and silence of the synthesizer espeak-ng in made noise, as 49 frames of 10 mel
cepstral coefficients; the test's voices are none of the training's.
wake: pixels of smooth noise, in half of them a garment of Fashion-MNIST. anomaly: sounds of made machines as 5 frames
of 128 mel bands, inputs and targets; test_anomalies.npz has machines with a worn bearing.
"""
import gzip
import os
import subprocess
import sys
import tempfile
import wave

import numpy as np

RATE = 16000
WORDS = "yes no up down left right on off stop go".split()
OTHERS = "bed bird cat dog happy house marvin sheila tree wow zero three".split()
VARIANTS = "m1 m2 m3 m4 m5 m6 m7 m8 f1 f2 f3 f4 f5 adam Alex Alicia Andrea Andy Annie belinda benjamin boris david Diogo".split()
FASHION = "/usr/share/datasets/fashion-mnist"


def mel_bands(count, points, low, high):
    """[count, points // 2 + 1]: triangles of equal width in mel."""
    to_mel = lambda f: 2595 * np.log10(1 + f / 700)
    edges = 700 * (10 ** (np.linspace(to_mel(low), to_mel(high), count + 2) / 2595) - 1)
    f = np.fft.rfftfreq(points, 1 / RATE)
    up = (f - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - f) / (edges[2:] - edges[1:-1])[:, None]
    return np.clip(np.minimum(up, down), 0, None)


def spectra(sounds, window, step, points):
    """[N, frames, points // 2 + 1] power spectra of [N, samples]."""
    frames = np.lib.stride_tricks.sliding_window_view(sounds, window, axis=1)[:, ::step]
    return np.abs(np.fft.rfft(frames * np.hanning(window), points, axis=-1)) ** 2 / points


def noise_of(rng, count, samples):
    """White, pink or brown."""
    f = np.maximum(np.fft.rfftfreq(samples, 1 / RATE), 20)
    slope = rng.choice([0, 0.5, 1], (count, 1))
    spectrum = np.fft.rfft(rng.standard_normal((count, samples)), axis=1) / f ** slope
    made = np.fft.irfft(spectrum, samples, axis=1)
    return made / made.std(axis=1, keepdims=True)


def spoken(word, voice, rng):
    """A second of it."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(["espeak-ng", "-v", f"en-{'us' if rng.random() < .7 else 'gb'}+{voice}", "-p", str(rng.integers(20, 80)),
                        "-s", str(rng.integers(120, 200)), "-w", file.name, word], check=True)
        with wave.open(file.name) as sound:
            rate, raw = sound.getframerate(), np.frombuffer(sound.readframes(-1), np.int16) / 32768
    raw = np.interp(np.arange(0, len(raw), rate / RATE), np.arange(len(raw)), raw)
    loud = np.nonzero(np.abs(raw) > 0.02)[0]
    return raw[loud[0]:loud[-1] + 1][:RATE] if len(loud) else np.zeros(1)


def keyword(folder, rng, voices, per_word, copies):
    clips, labels = [], []
    for label, words in [(i, [w]) for i, w in enumerate(WORDS)] + [(10, OTHERS)]:
        for _ in range(per_word):
            word = spoken(rng.choice(words), rng.choice(voices), rng)
            for _ in range(copies):
                clip = np.zeros(RATE)
                start = rng.integers(0, RATE - len(word) + 1)
                clip[start:start + len(word)] = word / max(np.abs(word).max(), 1e-3) * rng.uniform(0.3, 1)
                clips.append(clip)
                labels.append(label)
    clips += [np.zeros(RATE)] * (per_word * copies)
    labels += [11] * (per_word * copies)
    sounds = np.stack(clips) + noise_of(rng, len(clips), RATE) * 10 ** rng.uniform(-2.5, -0.9, (len(clips), 1))
    bands = mel_bands(40, 1024, 20, 4000)
    cosines = np.cos(np.pi / 40 * (np.arange(40) + 0.5)[:, None] * np.arange(10))
    features = [np.log(spectra(part, 640, 320, 1024) @ bands.T + 1e-6) @ cosines
                for part in np.array_split(sounds, len(sounds) // 200 + 1)]
    save(folder, rng, np.concatenate(features)[..., None].astype(np.float32), np.array(labels, np.int64))


def fashion(which):
    def read(name, header):
        with gzip.open(os.path.join(FASHION, f"{which}-{name}-ubyte.gz")) as file:
            return np.frombuffer(file.read(), np.uint8)[header:]
    return read("images-idx3", 16).reshape(-1, 28, 28), read("labels-idx1", 8).astype(np.int64)


def wake(folder, rng, which, count):
    images, _ = fashion(which)
    coarse = rng.uniform(0, 1, (count, 7, 7, 3))
    at = np.linspace(0, 5.999, 96)
    cell, part = at.astype(int), (at % 1)[:, None]
    rows = coarse[:, cell] * (1 - part[..., None]) + coarse[:, cell + 1] * part[..., None]
    part = part[None, :, :]
    pixels = rows[:, :, cell] * (1 - part) + rows[:, :, cell + 1] * part
    pixels += rng.normal(0, 0.06, pixels.shape)
    labels = rng.integers(0, 2, count)
    for i in np.nonzero(labels)[0]:
        size = int(rng.integers(28, 72))
        pick = np.arange(size) * 28 // size
        garment = images[rng.integers(len(images))][pick][:, pick, None] / 255
        top, left = rng.integers(0, 96 - size, 2)
        place = pixels[i, top:top + size, left:left + size]
        place += (garment * rng.uniform(0.2, 1, 3) - place) * (garment > 0.1)
    save(folder, rng, (np.clip(pixels, 0, 1) * 255).astype(np.uint8), labels)


def machines(rng, count, worn):
    """Five frames of fans: harmonics of one of four speeds, in noise; a worn one has knocks."""
    time = np.arange(512 * 6 + 512) / RATE
    speed = rng.choice([97.0, 143.0, 211.0, 307.0], (count, 1)) * rng.normal(1, 0.01, (count, 1))
    sound = 0.3 * noise_of(rng, count, len(time))
    for k in range(1, 12):
        sound += np.sin(2 * np.pi * (k * speed * time + rng.random((count, 1)))) / k
    if worn:
        knock = np.sin(2 * np.pi * rng.uniform(1500, 5000, (count, 1)) * time) * (np.sin(2 * np.pi * 0.37 * speed * time) > 0.8)
        sound += rng.uniform(0.1, 0.6, (count, 1)) * knock
    return np.log(spectra(sound, 1024, 512, 1024)[:, :5] @ mel_bands(128, 1024, 20, 8000).T + 1e-4).reshape(count, 640)


def save(folder, rng, inputs, targets):
    order = rng.permutation(len(inputs))
    np.savez(folder, inputs=inputs[order], targets=targets[order])


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    os.chdir(sys.argv[1])
    for name in ("keyword", "wake", "anomaly"):
        os.makedirs(name, exist_ok=True)
    rng = np.random.default_rng(1)
    keyword("keyword/train", rng, VARIANTS[:-6], 60, 8)
    keyword("keyword/test", rng, VARIANTS[-6:], 80, 5)
    rng = np.random.default_rng(2)
    wake("wake/train", rng, "train", 3000)
    wake("wake/test", rng, "t10k", 4000)
    rng = np.random.default_rng(3)
    sounds = machines(rng, 8000, worn=False)
    mean, deviation = sounds.mean(), sounds.std()
    for name, x in (("train", sounds), ("test", machines(rng, 1000, worn=False)), ("test_anomalies", machines(rng, 1000, worn=True))):
        x = ((x - mean) / deviation).astype(np.float32)
        np.savez(f"anomaly/{name}", inputs=x, targets=x)


main()

"""Speech, music and noise: recordings of Debian's packages; the held part has other speakers and other pieces."""
import os

import numpy as np

from quantize_inputs.sources import found

RATE = 16000
SPEAKERS = {"inputs": ("en", "es", "ru"), "held": ("fr", "it")}


def decoded(path, rate=RATE, form=None):
    """Samples of one channel, f32 in [-1, 1]."""
    import av

    with av.open(path, format=form) as file:
        convert = av.AudioResampler("flt", "mono", rate)
        parts = [out.to_ndarray()[0] for frame in file.decode(audio=0) for out in convert.resample(frame)]
        parts += [out.to_ndarray()[0] for out in convert.resample(None)]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def clips(context, part):
    """Spoken sentences of professional speakers in several languages; of the held part also a reader's and dictated numbers."""
    tree = context.sources.debian(*(f"asterisk-core-sounds-{language}-g722" for language in SPEAKERS[part]))
    every = []
    for language in SPEAKERS[part]:
        paths = [p for p in found(tree, f"usr/share/asterisk/sounds/{language}*/*.g722") if 12000 < os.path.getsize(p) < 120000]
        every += [decoded(path, form="g722") for path in context.random.sample(paths, min(70, len(paths)))]
    if part == "held":
        tree = context.sources.debian("pocketsphinx-testdata")
        every += [decoded(path) for path in found(tree, "usr/share/pocketsphinx/test/data/*/*.wav")]
        every += [np.fromfile(path, "<i2").astype(np.float32) / 32768 for path in found(tree, "usr/share/pocketsphinx/test/data/*.raw")]
    return [clip / max(1e-3, np.abs(clip).max()) for clip in every if len(clip) > RATE // 2]


def noises(context, part):
    """Surroundings: streets, crowds, machines; of the held part slides over snow and rock. Seconds of them repeat."""
    if part == "inputs":
        paths = found(context.sources.debian("lincity-ng-data"), "usr/share/games/lincity-ng/sounds/*.wav")
    else:
        paths = found(context.sources.debian("extremetuxracer-data"), "usr/share/games/etr/sounds/*.wav")
    every = [decoded(path) for path in paths]
    return [noise for noise in every if len(noise) > RATE // 4 and noise.std() > 1e-3]


def coloured(generator, length):
    """Noise whose power falls with the frequency to a random exponent."""
    spectrum = np.fft.rfft(generator.normal(size=length))
    spectrum[1:] /= np.arange(1, len(spectrum)) ** generator.uniform(0, 1)
    spectrum[0] = 0
    noise = np.fft.irfft(spectrum, length)
    return (noise / noise.std()).astype(np.float32)


class Talk:
    """A microphone: sentences and pauses, nearer and farther, with surroundings at 0 to 30 dB."""

    def __init__(self, context, part):
        self.random = context.random
        self.generator = np.random.default_rng(self.random.getrandbits(64))
        self.clips, self.noises = clips(context, part), noises(context, part)

    def next(self, seconds):
        """(with noise, without it): f32 [seconds * RATE]."""
        length, parts = round(seconds * RATE), [np.zeros(self.random.randrange(RATE), np.float32)]
        while sum(map(len, parts)) < length:
            parts += [self.random.choice(self.clips), np.zeros(round(RATE * self.random.uniform(0.1, 1.5)), np.float32)]
        clean = np.concatenate(parts)[:length] * self.random.uniform(0.08, 0.7)
        if self.random.random() < 0.5:
            noise = coloured(self.generator, length)
        else:
            piece = self.random.choice(self.noises)
            noise = np.tile(piece, -(-length // len(piece)))[:length]
            noise = noise / max(1e-6, noise.std())
        power = max(1e-4, np.sqrt(np.square(clean).mean()))
        return np.clip(clean + noise * power * 10 ** (-self.random.uniform(0, 30) / 20), -1, 1).astype(np.float32), clean


def session_of(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def voice_steps(context, part, count):
    """Steps in the middle of talks: 64 samples of before and 512 new ones, and the state that the network itself had then."""
    talk, session = Talk(context, part), session_of(context.model)
    inputs, states, labels = [], [], []
    while len(inputs) < count:
        heard, clean = talk.next(5)
        state, before = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32)
        steps = len(heard) // 512
        chosen = set(context.random.sample(range(steps), 4))
        for i in range(steps):
            x = np.concatenate([before, heard[i * 512:(i + 1) * 512]])
            if i in chosen and len(inputs) < count:
                inputs.append(x)
                states.append(state[:, 0])
                labels.append(float(np.sqrt(np.square(clean[i * 512:(i + 1) * 512]).mean()) > 0.02))
            _, state = session.run(["output", "stateN"], {"input": x[None], "state": state, "sr": np.array(RATE, np.int64)})
            before = x[-64:]
    return {"input": np.array(inputs, np.float32), "state": np.array(states, np.float32)}, labels


def voices_heard(outputs, labels):
    speech, voice = outputs["output"].ravel() > 0.5, np.array(labels) > 0
    return f"speech is heard in {100 * speech[voice].mean():.0f} % of the steps with a voice, {100 * speech[~voice].mean():.0f} % without"


def spectra(context, part, count, steps=100):
    """Logarithms of the power of noisy speech: windows of 20 ms every 10 ms."""
    talk, rows, labels = Talk(context, part), [], []
    window = np.sqrt(np.hanning(321)[:320])
    for _ in range(count):
        heard, clean = talk.next((steps + 1) / 100)
        both = [np.fft.rfft(np.stack([x[i * 160:i * 160 + 320] for i in range(steps)]) * window) for x in (heard, clean)]
        rows.append(np.log10(np.maximum(np.abs(both[0]) ** 2, 1e-12)))
        labels.append([both[0], both[1]])
    return np.array(rows, np.float32), labels


def noise_removed(outputs, labels):
    """How much weaker the network makes speech that is louder than the noise, and noise without speech."""
    gains = next(iter(outputs.values())).reshape(len(labels), *labels[0][0].shape)
    speech, noise = [], []
    for gain, (heard, clean) in zip(gains, labels):
        power = [np.square(np.abs(x)).sum(-1) for x in (heard, clean, heard * gain, heard - clean)]
        change = 10 * np.log10(np.maximum(power[2], 1e-12) / np.maximum(power[0], 1e-12))
        speech += list(change[power[1] > 4 * power[3]])
        noise += list(change[(power[1] < 1e-6) & (power[3] > 1e-6)])
    return f"speech is changed by {np.median(speech):.1f} dB, noise without speech by {np.median(noise):.1f} dB"


def wake_features(context, part, count):
    """Windows of 76 steps of the package's own mel spectrogram."""
    talk = Talk(context, part)
    folder = os.path.dirname(context.model_in_package)
    session = session_of(os.path.join(folder, "melspectrogram.onnx"))
    rows = []
    while len(rows) < count:
        heard, _ = talk.next(3)
        mel = session.run(None, {session.get_inputs()[0].name: (heard * 32767).round()[None].astype(np.float32)})[0]
        mel = mel.reshape(-1, 32) / 10 + 2
        rows += [mel[at:at + 76] for at in context.random.sample(range(len(mel) - 76), 2)]
    return np.array(rows[:count], np.float32)[..., None], None


def spread(outputs, labels):
    values = next(iter(outputs.values())).reshape(len(next(iter(outputs.values()))), -1)
    return f"deviation between samples {values.std(0).mean():.2f}, within {values.std(1).mean():.2f}"


def music(context, part, count):
    """Two seconds at 22,050 Hz of pieces of games."""
    if part == "inputs":
        paths = found(context.sources.debian("lincity-ng-data", "neverball-data"), "usr/share/games/lincity-ng/music/*/*.ogg",
                      "usr/share/games/neverball/bgm/*.ogg")
    else:
        paths = found(context.sources.debian("extremetuxracer-data"), "usr/share/games/etr/music/*.ogg")
    pieces = [decoded(path, 22050) for path in paths]
    pieces = [piece for piece in pieces if len(piece) > 2 * 43844]
    rows = []
    for i in range(count):
        piece = pieces[i % len(pieces)]
        at = context.random.randrange(len(piece) - 43844)
        rows.append(piece[at:at + 43844])
    return np.array(rows, np.float32)[..., None], None


def notes_heard(outputs, labels):
    return ", ".join(f"{name[-1]}: {(outputs[name] > 0.3).sum() / len(outputs[name]):.0f} above .3" for name in sorted(outputs))

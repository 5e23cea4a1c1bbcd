"""Files as torch.save() writes them, from the descriptions of zip archives and of pickle's opcodes alone."""
import io
import struct
import zipfile

STORAGES = {"F64": "DoubleStorage", "F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage",
            "I64": "LongStorage", "I32": "IntStorage", "I8": "CharStorage", "U8": "ByteStorage", "BOOL": "BoolStorage"}
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1, "BOOL": 1}
ORDERED_DICT = b"ccollections\nOrderedDict\n)R"


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    return b"J" + struct.pack("<i", value)


def numbers(values):
    return b"(" + b"".join(number(v) for v in values) + b"t"


def tensor(dtype, key, elements, shape, strides, offset=0):
    storage = (b"(" + text("storage") + b"ctorch\n" + STORAGES[dtype].encode() + b"\n" + text(key) + text("cpu") +
               number(elements) + b"tQ")
    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + numbers(shape) + numbers(strides) +
            b"\x89" + ORDERED_DICT + b"tR")


def state_dict(tensors):
    """tensors: {name: (dtype, shape, data)}. Returns an ordered dict's opcodes and the storages."""
    body, storages = b"", {}
    for i, (name, (dtype, shape, data)) in enumerate(tensors.items()):
        strides = [1] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * shape[axis + 1]
        body += text(name) + tensor(dtype, str(i), len(data) // SIZES[dtype], shape, strides)
        storages[str(i)] = data
    return ORDERED_DICT + b"(" + body + b"u", storages


def entries(values):
    """{name: opcodes} as a dict's opcodes."""
    return b"}(" + b"".join(text(name) + value for name, value in values.items()) + b"u"


def archive(value, storages, method=zipfile.ZIP_STORED, protocol=2):
    files = {"data.pkl": b"\x80" + bytes([protocol]) + value + b".", "byteorder": b"little", "version": b"3\n"}
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", method) as out:
        for name, data in {**files, **{"data/" + key: data for key, data in storages.items()}}.items():
            info = zipfile.ZipInfo("model/" + name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            out.writestr(info, data)
    return raw.getvalue()

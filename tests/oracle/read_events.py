# SPDX-License-Identifier: MIT
# An independent reader of TensorBoard event files, plain Python, written from the formats' descriptions: TFRecord framing
# with masked CRC-32C, and the Event protocol buffer. The other side of test_events_python.sh.
#   read_events.py PATH         print the events as JSON lines; status 1 with a sentence where the file is not as it should be
#   read_events.py check PATH   compare with what test_events --write writes
import json
import struct
import sys


class Bad(Exception):
    pass


def make_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = make_table()


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        if len(data) - at < 12:
            raise Bad(f"byte {at}: {len(data) - at} bytes are no record")
        length, crc = struct.unpack_from("<QI", data, at)
        if crc != masked_crc(data[at : at + 8]):
            raise Bad(f"byte {at}: the length's checksum is wrong")
        if length > len(data) - at - 16:
            raise Bad(f"byte {at}: a record of {length} bytes is cut off")
        body = data[at + 12 : at + 12 + length]
        if struct.unpack_from("<I", data, at + 12 + length)[0] != masked_crc(body):
            raise Bad(f"byte {at}: the record's checksum is wrong")
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) in order; a value is an int, a float or bytes by its wire type."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, at = varint(data, at)
        elif wire_type == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif wire_type == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        elif wire_type == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            if len(value) != size:
                raise Bad(f"field {number} is cut off")
        else:
            raise Bad(f"field {number} has the wire type {wire_type}")
        yield number, value


def decode(body):
    event = {"step": 0, "scalars": []}
    for number, value in fields(body):
        if number == 1:
            event["wall_time"] = value
        elif number == 2:
            event["step"] = value - (1 << 64) if value >> 63 else value
        elif number == 3:
            event["file_version"] = value.decode()
        elif number == 5:
            for inner, scalar in fields(value):
                parts = dict(fields(scalar))
                if inner != 1 or set(parts) != {1, 2}:
                    raise Bad(f"a summary's value has the fields {sorted(parts)}")
                event["scalars"].append([parts[1].decode(), parts[2]])
        else:
            raise Bad(f"an event has the field {number}")
    return event


def read(path):
    events = [decode(body) for body in records(open(path, "rb").read())]
    if not events or events[0].get("file_version") != "brain.Event:2":
        raise Bad("the first record does not name the version brain.Event:2")
    return events


def as_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def expected():
    yield 0, []
    for i in range(20):
        scalars = [["train/loss", as_float(10 / (i + 1))], ["lr", as_float(1e-3 * i)], ["größe", -0.0]]
        yield i * 1000003, scalars if i % 2 else scalars[:1]
    yield (1 << 63) - 1, [["nan", float("nan")], ["inf", float("-inf")]]
    yield -1, []


def check(path):
    found = [(event["step"], event["scalars"]) for event in read(path)]
    if repr(found) != repr(list(expected())):  # as text, because a NaN does not equal itself
        raise Bad(f"found {found}")


def main(arguments):
    try:
        if len(arguments) == 2 and arguments[0] == "check":
            check(arguments[1])
        elif len(arguments) == 1:
            for event in read(arguments[0]):
                print(json.dumps(event))
        else:
            sys.exit("usage: read_events.py [check] PATH")
    except (Bad, IndexError, struct.error) as problem:
        sys.exit(f"{arguments[-1]}: {problem}")


main(sys.argv[1:])

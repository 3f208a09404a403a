// Bounds the content of a worker's message before it is decoded, by a scan of its protobuf fields
// that builds no objects. A message of 16 MB can contain eight million empty reports, which take
// gigabytes when decoded.
import type { PackageDefinition } from '@grpc/proto-loader';
import { z } from 'zod';
import { MAX_CHUNKS, MAX_LISTED, MAX_REPORTS, MAX_VALUES } from '../../wire/message-bounds.ts';

/** Lists with bounds other than `MAX_LISTED`. */
const LIST_LIMITS = new Map([
  ['Reports.reports', MAX_REPORTS],
  ['Report.sizes', MAX_CHUNKS],
]);

interface Field {
  name: string;
  /** Most elements of a list in the whole message. */
  limit: number | undefined;
  /** Fields of a nested message. */
  fields: Fields | undefined;
  wire: number;
  /** A list of numbers, which may also be packed into one field. */
  isPacked: boolean;
}

type Fields = ReadonlyMap<number, Field>;

const WIRE = { varint: 0, fixed64: 1, bytes: 2, fixed32: 5 } as const;
/** Wire types other than varint. */
const WIRE_OF = new Map<string, number>([
  ['TYPE_MESSAGE', WIRE.bytes],
  ['TYPE_STRING', WIRE.bytes],
  ['TYPE_BYTES', WIRE.bytes],
  ['TYPE_DOUBLE', WIRE.fixed64],
]);
const MORE_BIT = 0x80;

export class MessageBounds {
  readonly #fields: Fields;

  /** For messages of this type, from the definitions that decode them. */
  constructor(definitions: PackageDefinition, type: string) {
    this.#fields = readFields(listTypes(definitions), type);
  }

  /**
   * Returns which bound the message exceeds; undefined if none.
   * @throws Error for invalid bytes, which a decoder could not read either
   */
  findExcess(message: Uint8Array): string | undefined {
    return new MessageScan(message).run(this.#fields);
  }

  /** Reads the `call` of an undecoded message; 0 without one. */
  readCall(message: Uint8Array): number {
    return new MessageScan(message).readCall(this.#fields);
  }
}

class MessageScan {
  readonly #bytes: Uint8Array;
  readonly #counts = new Map<Field, number>();
  #at = 0;
  #tags = 0;
  #excess: string | undefined;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  run(fields: Fields): string | undefined {
    this.#walk(fields, this.#bytes.length);
    return this.#excess;
  }

  readCall(fields: Fields): number {
    for (let tags = 0; this.#at < this.#bytes.length && tags < MAX_VALUES; tags++) {
      const tag = this.#readVarint();
      const wire = tag & 7;
      if (wire === WIRE.varint && fields.get(tag >>> 3)?.name === 'call') return this.#readVarint();
      if (wire === WIRE.bytes) this.#skip(this.#readVarint());
      else this.#skipScalar(wire);
    }
    return 0;
  }

  #walk(fields: Fields, end: number): void {
    while (this.#at < end && !this.#excess) {
      if (++this.#tags > MAX_VALUES) {
        this.#excess = `the message has more than ${MAX_VALUES} fields`;
        return;
      }
      const tag = this.#readVarint();
      const field = fields.get(tag >>> 3);
      const wire = tag & 7;
      // The decoder goes by field number alone, so a field with another wire type is rejected.
      if (field && wire !== field.wire && !(field.isPacked && wire === WIRE.bytes)) {
        throw new Error(`${field.name} has wire type ${wire}`);
      }
      if (wire === WIRE.bytes) this.#enter(field);
      else {
        this.#skipScalar(wire);
        if (field) this.#count(field, 1);
      }
    }
    if (this.#at > end && !this.#excess) throw new Error('a field is longer than its message');
  }

  /** A field with a length: text, bytes, a message, or packed numbers. */
  #enter(field: Field | undefined): void {
    const length = this.#readVarint();
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new Error('a field is longer than the message');
    if (field) this.#count(field, field.isPacked ? this.#countPacked(field, end) : 1);
    if (field?.fields) this.#walk(field.fields, end);
    else this.#skip(length);
  }

  #countPacked({ limit = 0 }: Field, end: number): number {
    let count = 0;
    for (let at = this.#at; at < end && count <= limit; at++) {
      if ((this.#bytes[at] ?? 0) < MORE_BIT) count++;
    }
    return count;
  }

  #count(field: Field, elements: number): void {
    if (field.limit === undefined) return;
    const count = (this.#counts.get(field) ?? 0) + elements;
    this.#counts.set(field, count);
    if (count > field.limit) {
      this.#excess ??= `${field.name} has more than ${field.limit} elements`;
    }
  }

  #skipScalar(wire: number): void {
    if (wire === WIRE.varint) this.#readVarint();
    else if (wire === WIRE.fixed64) this.#skip(8);
    else if (wire === WIRE.fixed32) this.#skip(4);
    else throw new Error(`wire type ${wire} is not supported`);
  }

  #skip(bytes: number): void {
    this.#at += bytes;
    if (this.#at > this.#bytes.length) throw new Error('the message was cut short');
  }

  /** Returns the low 32 bits: no valid tag, length or count is longer. */
  #readVarint(): number {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined) throw new Error('the message was cut short');
      if (shift < 32) value |= (byte & 0x7f) << shift;
      if (byte < MORE_BIT) return value >>> 0;
    }
    throw new Error('a number is longer than 10 bytes');
  }
}

const messageType = z.object({
  type: z.object({
    name: z.string(),
    field: z.array(
      z.object({
        name: z.string(),
        number: z.number(),
        label: z.string(),
        type: z.string(),
        typeName: z.string(),
      }),
    ),
  }),
});
type FieldTypes = z.infer<typeof messageType>['type']['field'];

/** Messages by name; services and enumerations are ignored. */
function listTypes(definitions: PackageDefinition): Map<string, FieldTypes> {
  const types = new Map<string, FieldTypes>();
  for (const definition of Object.values(definitions)) {
    const { data } = messageType.safeParse(definition);
    if (data) types.set(data.type.name, data.type.field);
  }
  return types;
}

function readFields(types: ReadonlyMap<string, FieldTypes>, type: string): Fields {
  const fields = types.get(type);
  if (!fields) throw new Error(`there is no message ${type}`);
  const entries = fields.map(({ label, name, number, type: kind, typeName }): [number, Field] => {
    const isList = label === 'LABEL_REPEATED';
    const limit = LIST_LIMITS.get(`${type}.${name}`) ?? MAX_LISTED;
    const wire = WIRE_OF.get(kind) ?? WIRE.varint;
    const field: Field = {
      name,
      wire,
      limit: isList ? limit : undefined,
      fields: kind === 'TYPE_MESSAGE' ? readFields(types, typeName) : undefined,
      isPacked: isList && wire === WIRE.varint,
    };
    return [number, field];
  });
  return new Map(entries);
}

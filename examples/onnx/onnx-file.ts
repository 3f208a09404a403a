// Writes ONNX model files, which are protocol buffers. It knows the fields that a chain of operators with
// float32 weights needs; onnx.proto3 of the ONNX project lists all of them with their numbers.

const FLOAT = 1;
const IR_VERSION = 8;
const OPERATOR_SET = 17;

/** A size, or the name of a size that each run chooses, such as `batch`. */
export type Dimension = number | string;

export interface Value {
  name: string;
  shape: readonly Dimension[];
}

export interface Weights {
  name: string;
  shape: readonly number[];
  /** In row-major order; as many as the product of `shape`. */
  values: readonly number[];
}

export interface Node {
  /** Of the ONNX operator set, such as `MatMul`. */
  operator: string;
  inputs: readonly string[];
  output: string;
}

export interface Graph {
  name: string;
  inputs: readonly Value[];
  outputs: readonly Value[];
  weights: readonly Weights[];
  /** Each after the nodes whose outputs it reads. */
  nodes: readonly Node[];
}

export function encodeModel(graph: Graph): Uint8Array {
  return message(
    number(1, IR_VERSION),
    bytes(2, 'millrace-example-onnx'),
    bytes(7, encodeGraph(graph)),
    bytes(8, message(bytes(1, ''), number(2, OPERATOR_SET))),
  );
}

function encodeGraph({ inputs, name, nodes, outputs, weights }: Graph): Uint8Array {
  return message(
    ...nodes.map((node) => bytes(1, encodeNode(node))),
    bytes(2, name),
    ...weights.map((tensor) => bytes(5, encodeTensor(tensor))),
    ...inputs.map((value) => bytes(11, encodeValue(value))),
    ...outputs.map((value) => bytes(12, encodeValue(value))),
  );
}

function encodeNode({ inputs, operator, output }: Node): Uint8Array {
  return message(...inputs.map((input) => bytes(1, input)), bytes(2, output), bytes(4, operator));
}

function encodeTensor({ name, shape, values }: Weights): Uint8Array {
  const data = Buffer.alloc(values.length * Float32Array.BYTES_PER_ELEMENT);
  for (const [index, value] of values.entries()) data.writeFloatLE(value, index * 4);
  const sizes = shape.map((size) => number(1, size));
  return message(...sizes, number(2, FLOAT), bytes(8, name), bytes(9, data));
}

function encodeValue({ name, shape }: Value): Uint8Array {
  const sizes = shape.map((size) => (typeof size === 'number' ? number(1, size) : bytes(2, size)));
  const tensor = message(
    number(1, FLOAT),
    bytes(2, message(...sizes.map((size) => bytes(1, size)))),
  );
  return message(bytes(1, name), bytes(2, message(bytes(1, tensor))));
}

const message = (...fields: Uint8Array[]): Uint8Array => Buffer.concat(fields);

/** A field with an integer from 0 to 2³¹ − 1. */
function number(field: number, value: number): Uint8Array {
  return message(varint(field * 8), varint(value));
}

/** A field with a string, raw bytes or another message: all have their length before them. */
function bytes(field: number, content: string | Uint8Array): Uint8Array {
  const data = Buffer.from(content);
  return message(varint(field * 8 + 2), varint(data.length), data);
}

/** Seven bits a byte, the lowest first; the high bit says that more bytes follow. */
function varint(value: number): Uint8Array {
  const groups: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) groups.push((rest & 0x7f) | 0x80);
  return Uint8Array.from([...groups, rest]);
}

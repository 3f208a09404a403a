// Each message of the worker link: its description accepts what has all members, refuses each fault by its path, and
// agrees with worker.proto.
import { loadSync } from '@grpc/proto-loader';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Field, FieldFault } from '../../../../src/wire/link/fields.ts';
import {
  leaseHeaders,
  renewReply,
  renewRequest,
  reportHeaders,
  reportReplies,
  takeRequest,
  workerBye,
  workerHello,
  workerWelcome,
} from '../../../../src/wire/link/worker-link.ts';
import {
  METHOD_NAME,
  openEnvelope,
  PROTO_OPTIONS,
  PROTO_PATH,
  SERVICE_NAME,
} from '../../../../src/wire/link/worker-stream.ts';
import { errorAt } from '../../../support/answers.ts';
import { fc } from '../../../support/properties.ts';

const service = loadSync(PROTO_PATH, PROTO_OPTIONS)[SERVICE_NAME];
if (!service || !(METHOD_NAME in service)) throw new Error('worker.proto has no such method');
const { [METHOD_NAME]: method } = service;

interface Message {
  field: Field<unknown>;
  /** Name of the kind in `ToPlatform` or `ToWorker`. */
  kind: string;
  from: 'worker' | 'platform';
  /** The message is this member of the one of Protocol Buffers, which cannot be a list. */
  list?: string;
}

const messages: Record<string, Message> = {
  hello: { field: workerHello, kind: 'hello', from: 'worker' },
  take: { field: takeRequest, kind: 'credit', from: 'worker' },
  renewal: { field: renewRequest, kind: 'renew', from: 'worker' },
  'report request': { field: reportHeaders, kind: 'reports', from: 'worker' },
  bye: { field: workerBye, kind: 'bye', from: 'worker' },
  welcome: { field: workerWelcome, kind: 'welcome', from: 'platform' },
  'list of leases': { field: leaseHeaders, kind: 'leases', from: 'platform', list: 'leases' },
  'renewal reply': { field: renewReply, kind: 'renewed', from: 'platform' },
  'list of report replies': {
    ...{ field: reportReplies, kind: 'reportAnswers', from: 'platform', list: 'answers' },
  },
};

const TEXTS = ['x', '{"title":"é"}'];

/** Values of a field that together have each member and each kind of union. */
function makeSamples({ read, shape }: Field<unknown>): unknown[] {
  switch (shape.kind) {
    case 'text':
      return [TEXTS.find((each) => isAccepted({ read, shape }, each))];
    case 'whole':
      return [shape.max];
    case 'number':
      return [1.5];
    case 'flag':
      return [true];
    case 'word':
      return [shape.words.at(-1)];
    case 'list':
      return [makeSamples(shape.element)];
    case 'union':
      return shape.cases.flatMap(makeSamples);
    case 'record': {
      const members = Object.entries(shape.fields).map(
        ([name, field]) => [name, makeSamples(field)] as const,
      );
      const count = Math.max(1, ...members.map(([, samples]) => samples.length));
      return Array.from({ length: count }, (_, index) =>
        Object.fromEntries(members.map(([name, all]) => [name, all[index % all.length]])),
      );
    }
  }
}

function isAccepted(field: Field<unknown>, value: unknown): boolean {
  try {
    field.read(value);
    return true;
  } catch (error) {
    if (error instanceof FieldFault) return false;
    throw error;
  }
}

function findFault({ read }: Field<unknown>, value: unknown): string {
  try {
    return `accepted: ${JSON.stringify(read(value))}`;
  } catch (error) {
    if (error instanceof FieldFault) return error.describe('message');
    throw error;
  }
}

interface Place {
  path: string;
  isOptional: boolean;
  /** The whole value, with another one in this place. */
  put: (other: unknown) => unknown;
}

/** Every place within `value`, that of itself included. */
function listPlaces(value: unknown, field: Field<unknown>, path = ''): Place[] {
  const { shape } = field;
  const places: Place[] = [{ path, isOptional: 'isOptional' in field, put: (other) => other }];
  const within = (name: string, at: string, member: unknown, inner: Field<unknown>) =>
    listPlaces(member, inner, at).map((place) => ({
      ...place,
      put: (other: unknown) =>
        Array.isArray(value)
          ? value.with(Number(name), place.put(other))
          : { ...Object(value), [name]: place.put(other) },
    }));
  if (shape.kind === 'list' && Array.isArray(value)) {
    return places.concat(
      value.flatMap((each, index) => within(`${index}`, `${path}[${index}]`, each, shape.element)),
    );
  }
  if (shape.kind === 'union') {
    const found = shape.cases.find((each) => isAccepted(each, value));
    return found ? listPlaces(value, found, path) : [];
  }
  if (shape.kind !== 'record') return places;
  const prefix = path === '' ? '' : `${path}.`;
  const members = new Map(Object.entries(Object(value)));
  return places.concat(
    Object.entries(shape.fields).flatMap(([name, inner]) =>
      members.has(name) ? within(name, prefix + name, members.get(name), inner) : [],
    ),
  );
}

/** On this side and that of a rule. */
const odd = [
  ...[null, '', 'x'.repeat(64), 'x'.repeat(65), 'x'.repeat(129), 'kept', 'gap', true, {}, [], [[]]],
  ...[Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, 0.5, -1, 0, 1],
];

function passThroughProto({ from, kind, list }: Message, sample: unknown): unknown {
  const envelope = { call: 1, [kind]: list ? { [list]: sample } : sample };
  const decoded =
    from === 'worker'
      ? method.requestDeserialize(method.requestSerialize(envelope))
      : method.responseDeserialize(method.responseSerialize(envelope));
  const { content } = openEnvelope(decoded);
  return list ? z.record(z.string(), z.unknown()).parse(content)[list] : content;
}

describe.each(Object.entries(messages))('a %s', (_name, message) => {
  const { field } = message;
  const samples = makeSamples(field);

  it('is accepted with all members, without change', () => {
    for (const sample of samples) expect(field.read(sample)).toEqual(sample);
  });

  it('keeps all members on HTTP and on gRPC', () => {
    for (const sample of samples) {
      expect(field.read(JSON.parse(JSON.stringify(sample)))).toEqual(sample);
      expect(field.read(passThroughProto(message, sample))).toEqual(sample);
    }
  });

  it('is refused without a member, unless the member is optional', () => {
    for (const { isOptional, path, put } of samples.flatMap((each) => listPlaces(each, field))) {
      const fault = findFault(field, put(undefined));
      expect(fault).toEqual(
        isOptional ? expect.stringMatching(/^accepted/) : errorAt(path || 'message'),
      );
    }
  });

  it('is refused by the path of a member that is invalid, or returned as given', () => {
    const places = samples.flatMap((sample) => listPlaces(sample, field));
    const judge = ({ path, put }: Place, other: unknown) => {
      const value = put(other);
      if (isAccepted(field, value))
        expect(field.read(field.read(value))).toEqual(field.read(value));
      else expect(findFault(field, value)).toContain(path.replace(/\.?\w+$/, ''));
    };
    for (const place of places) for (const other of odd) judge(place, other);
    fc.assert(fc.property(fc.constantFrom(...places), fc.jsonValue(), judge));
  });

  it('drops members that it does not have', () => {
    const [sample] = samples;
    const more = JSON.parse('{"since":1,"__proto__":{"x":1},"constructor":1}');
    if (Array.isArray(sample)) expect(field.read([{ ...sample[0], ...more }])).toEqual([sample[0]]);
    else expect(field.read({ ...Object(sample), ...more })).toEqual(sample);
  });
});

const identity = { workerId: 'w', incarnation: 1 };
const hello = { ...identity, protocol: 1, version: '', slots: 1, devices: [], outbox: [] };
const report = { jobId: 'j', attempt: 1, token: 't', seq: 1, kind: 'chunks', first: 0, sizes: [2] };
const renewed = { jobId: 'j', token: 't', stopping: false };

describe('a message out of bounds is refused by the path', () => {
  it.each<[string, Field<unknown>, unknown]>([
    ['workerId', workerHello, { ...hello, workerId: '-w' }],
    ['workerId', workerHello, { ...hello, workerId: 'w'.repeat(129) }],
    ['slots', workerHello, { ...hello, slots: 0 }],
    ['version', workerHello, { ...hello, version: 'v'.repeat(201) }],
    ['devices', workerHello, { ...hello, devices: Array.from({ length: 257 }) }],
    ['inputSchema', workerHello, { ...hello, inputSchema: '[]' }],
    ['max', takeRequest, { ...identity, takeId: 't', max: 1_001, waitMs: 0, held: [] }],
    ['waitMs', takeRequest, { ...identity, takeId: 't', max: 1, waitMs: 60_001, held: [] }],
    ['held[0]', takeRequest, { ...identity, takeId: 't', max: 1, waitMs: 0, held: [''] }],
    ['leases[1].jobId', renewRequest, { ...identity, waitMs: 0, leases: [renewed, {}, {}] }],
    ['leases', renewRequest, { ...identity, waitMs: 0, leases: Array.from({ length: 10_001 }) }],
    [
      'detail',
      workerBye,
      { ...identity, reason: 'crashed', outbox: [], detail: 'd'.repeat(4_001) },
    ],
    ...[[], [1], [2.5], [1_000_001], ['2'], '2'].map((sizes): [string, Field<unknown>, unknown] => [
      'reports[1].sizes',
      reportHeaders,
      { ...identity, reports: [report, { ...report, sizes }] },
    ]),
    ['reports[0].kind', reportHeaders, { ...identity, reports: [{ ...report, kind: 'x' }] }],
    ['reports', reportHeaders, { ...identity, reports: Array(1_001).fill(report) }],
  ])('%s', (path, field, value) => {
    expect(findFault(field, value)).toMatch(
      new RegExp(`^${RegExp.escape(path)}(\\[\\d+\\])?: (must|is missing)`),
    );
  });
});

/** What a carrier adds to the messages that have bodies. */
const CARRIED = ['payload', 'bodyBytes'];
const PROTO_TYPES = {
  text: 'TYPE_STRING',
  word: 'TYPE_STRING',
  flag: 'TYPE_BOOL',
  number: 'TYPE_DOUBLE',
};

const descriptor = z.object({
  name: z.string(),
  field: z.array(
    z.object({ name: z.string(), label: z.string(), type: z.string(), typeName: z.string() }),
  ),
});
const protoTypes = new Map(
  Object.values(loadSync(PROTO_PATH, PROTO_OPTIONS))
    .filter((each) => 'format' in each)
    .map(({ type }) => descriptor.parse(type))
    .map(({ field, name }) => [name, field]),
);

/** Names and types of all members: `leases[].token TYPE_STRING`. */
function listProtoMembers(type: string, path = ''): string[] {
  const fields = protoTypes.get(type) ?? expect.unreachable(type);
  return fields
    .filter(({ name }) => !CARRIED.includes(camelCase(name)))
    .flatMap(({ label, name, type: kind, typeName }) => {
      const at = `${path}${camelCase(name)}${label === 'LABEL_REPEATED' ? '[]' : ''}`;
      return kind === 'TYPE_MESSAGE' ? listProtoMembers(typeName, `${at}.`) : [`${at} ${kind}`];
    });
}

function camelCase(name: string): string {
  return name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

function listMembers({ shape }: Field<unknown>, path: string): string[] {
  switch (shape.kind) {
    case 'list':
      return listMembers(shape.element, `${path}[]`);
    case 'record': {
      const prefix = path === '' ? '' : `${path}.`;
      const members = Object.entries(shape.fields);
      return members.flatMap(([name, field]) => listMembers(field, prefix + name));
    }
    case 'union':
      return shape.cases.flatMap((each) => listMembers(each, path));
    case 'whole':
      return [`${path} ${shape.max < 2 ** 32 ? 'TYPE_UINT32' : 'TYPE_INT64'}`];
    default:
      return [`${path} ${PROTO_TYPES[shape.kind]}`];
  }
}

describe('worker.proto', () => {
  it.each(Object.entries(messages))('has the members of a %s and no other', (_, message) => {
    const { field, from, kind, list = '' } = message;
    const kinds = protoTypes.get(from === 'worker' ? 'ToPlatform' : 'ToWorker');
    const type = kinds?.find(({ name }) => camelCase(name) === kind)?.typeName ?? kind;
    const members = new Set(listMembers(field, list));
    expect(listProtoMembers(type).sort()).toEqual([...members].sort());
  });
});

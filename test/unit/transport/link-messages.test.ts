// Every member of every message of the worker link survives both carriers: JSON, and Protocol Buffers.
import { loadSync } from '@grpc/proto-loader';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  readLeaseHeader,
  readRenewReply,
  readReportReplies,
  readWelcome,
} from '../../../src/transport/link-answers.ts';
import {
  leaseHeader,
  renewReply,
  renewRequest,
  reportHeader,
  reportReply,
  takeRequest,
  workerBye,
  workerHello,
  workerWelcome,
} from '../../../src/wire/link/worker-link-schemas.ts';
import {
  METHOD_NAME,
  openEnvelope,
  PROTO_OPTIONS,
  PROTO_PATH,
  SERVICE_NAME,
} from '../../../src/wire/link/worker-stream.ts';

const service = loadSync(PROTO_PATH, PROTO_OPTIONS)[SERVICE_NAME];
if (!service || !(METHOD_NAME in service)) throw new Error('worker.proto has no such method');
const { [METHOD_NAME]: method } = service;

const identity = { workerId: 'w', incarnation: 1_767_225_600_000 };
const lease = { jobId: 'j', attempt: 2, token: 't' };
const error = {
  ...{ code: 'execution_timeout', message: 'm', type: 'E', stack: 'at' },
  stuck: {
    ...{ state: 'waiting', stack: 's', chunks: 1, lastChunkMs: 2 },
    ...{ eventLoopUtilization: 0.5, heapUsedBytes: 3 },
  },
};
const usage = {
  gpu: {
    ...{ seconds: 1.5, vramPeakBytes: 3, vramMeanBytes: 2, vramScope: 'process' },
    ...{ utilizationMean: 0.5, energyJoules: 450.25, shared: true },
  },
};
const outcomes = [
  { kind: 'completed', executionMs: 1.5, output: 'chunks' },
  {
    ...{ kind: 'failed', executionMs: 1, error, retry: 'after', retryAfterMs: 5 },
    stopped: 'signal',
  },
  { kind: 'timed_out', executionMs: 1, error, stopped: 'thread' },
  { kind: 'cancelled', executionMs: 1, stopped: 'return' },
  { kind: 'released', reason: 'drain' },
];
const report = { ...lease, seq: 3, traceparent: 'p' };

interface Message {
  /** Name of the call in `ToPlatform` or of the answer in `ToWorker`. */
  kind: string;
  /** Each member is in one of the samples at least. */
  samples: readonly object[];
  schema: z.ZodType;
  read?: (value: unknown) => unknown;
  /** A list inside a message of Protocol Buffers. */
  list?: string;
}

const questions: Message[] = [
  {
    kind: 'hello',
    samples: [
      {
        ...{ ...identity, protocol: 1, version: '0', slots: 2, outbox: [lease], requires: ['x'] },
        devices: [{ kind: 'gpu', index: 1, uuid: 'u', name: 'n', memoryBytes: 1e11 }],
        ...{ inputSchema: '{"title":"é"}', handlerVersion: 3 },
      },
    ],
    schema: workerHello,
  },
  {
    kind: 'credit',
    samples: [{ ...identity, takeId: 'i', seq: 2, max: 3, waitMs: 4, held: ['t'] }],
    schema: takeRequest,
  },
  {
    kind: 'renew',
    samples: [
      {
        ...{ ...identity, waitMs: 4 },
        leases: [{ jobId: 'j', token: 't', stopping: true, delivering: true }],
      },
    ],
    schema: renewRequest,
  },
  {
    kind: 'reports',
    list: 'reports',
    samples: [
      { ...report, kind: 'chunks', first: 1, sizes: [2, 3] },
      { ...report, kind: 'progress' },
      { ...report, kind: 'log', dropped: 4 },
      ...outcomes.map((outcome) => ({
        ...{ ...report, kind: 'outcome', outcome, recycle: true, usage, waitedMs: 1.5 },
      })),
    ],
    schema: reportHeader,
  },
  {
    kind: 'bye',
    samples: [
      {
        ...{ ...identity, reason: 'crashed', detail: 'd', outbox: [lease] },
      },
    ],
    schema: workerBye,
  },
];

const answers: Message[] = [
  {
    kind: 'welcome',
    samples: [
      {
        ...{ protocol: 1, capabilities: ['c'], leaseMs: 1, renewEveryMs: 2, takeWaitMs: 3 },
        ...{ reportsBy: 'attempt', takesBack: false, replacesWorkers: true },
      },
    ],
    schema: workerWelcome,
    read: readWelcome,
  },
  {
    kind: 'leases',
    list: 'leases',
    samples: [
      {
        ...{ ...lease, executionTimeoutMs: 1, solo: true, submittedAt: 1_767_225_600_000 },
        ...{ traceparent: 'p', tracestate: 's', s3Config: '{}' },
      },
    ],
    schema: leaseHeader,
    read: (value) => readLeaseHeader(value, 'lease'),
  },
  {
    kind: 'renewed',
    samples: [{ ended: [{ jobId: 'j', token: 't', verdict: 'cancelled' }], drain: true }],
    schema: renewReply,
    read: readRenewReply,
  },
  {
    kind: 'reportAnswers',
    list: 'answers',
    samples: [{ answer: 'applied' }, { answer: 'gap', expected: 3 }],
    schema: reportReply,
    read: (value) => readReportReplies([value])[0],
  },
];

/** Names of all members, inner ones included: `error.stuck.state`. */
function listMembers(schema: unknown, path = ''): string[] {
  const shown = z.looseObject({
    properties: z.record(z.string(), z.unknown()).exactOptional(),
    items: z.unknown().exactOptional(),
    anyOf: z.array(z.unknown()).exactOptional(),
    oneOf: z.array(z.unknown()).exactOptional(),
  });
  const { anyOf = [], items, oneOf = [], properties = {} } = shown.parse(schema);
  return [
    ...Object.entries(properties).flatMap(([name, inner]) => [
      path + name,
      ...listMembers(inner, `${path}${name}.`),
    ]),
    ...(items ? listMembers(items, path) : []),
    ...[...anyOf, ...oneOf].flatMap((each) => listMembers(each, path)),
  ];
}

function listKeys(value: unknown, path = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((item) => listKeys(item, path));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => [
    path + name,
    ...listKeys(inner, `${path}${name}.`),
  ]);
}

function passThroughProto(side: 'request' | 'response', message: Message, sample: object): unknown {
  const { kind, list } = message;
  const envelope = { call: 1, [kind]: list ? { [list]: [sample] } : sample };
  const bytes =
    side === 'request' ? method.requestSerialize(envelope) : method.responseSerialize(envelope);
  const decoded =
    side === 'request' ? method.requestDeserialize(bytes) : method.responseDeserialize(bytes);
  const { content } = openEnvelope(decoded);
  if (!list) return content;
  return z.record(z.string(), z.unknown()).parse(content)[list];
}

const first = (value: unknown) => (Array.isArray(value) ? value[0] : value);

describe.each([
  ['request', questions],
  ['response', answers],
] as const)('each %s', (side, messages) => {
  it.each(messages.map((message) => [message.kind, message] as const))(
    '%s keeps all its members',
    (_, message) => {
      const { list, read, samples, schema } = message;
      const readBack = read ?? ((value: unknown) => schema.parse(value));
      const members = listMembers(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }));
      const sampled = new Set(samples.flatMap((sample) => listKeys(sample)));
      expect(members.filter((member) => !sampled.has(member))).toEqual([]);
      for (const sample of samples) {
        expect(readBack(JSON.parse(JSON.stringify(sample)))).toEqual(sample);
        const received = passThroughProto(side, message, sample);
        expect(readBack(list ? first(received) : received)).toEqual(sample);
      }
    },
  );
});

// What a worker takes for an answer of the platform: the hand-written checks against the schemas
// that the platform has for the same messages.

import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  AnswerError,
  readLeaseHeader,
  readRenewReply,
  readReportReplies,
  readWelcome,
} from '../../../src/transport/link-answers.ts';
import {
  leaseHeader,
  renewReply,
  reportReply,
  workerWelcome,
} from '../../../src/wire/link/worker-link-schemas.ts';
import { errorAt } from '../../support/answers.ts';
import { fc } from '../../support/properties.ts';

interface Answer {
  read: (value: unknown) => unknown;
  schema: z.ZodType;
  valid: unknown;
}

const ended = { jobId: 'a', token: 't', verdict: 'lost' };

const answers: Record<string, Answer> = {
  welcome: {
    read: readWelcome,
    schema: workerWelcome,
    valid: { protocol: 1, leaseMs: 15_000, renewEveryMs: 5_000.5, takeWaitMs: 0 },
  },
  lease: {
    read: (value) => readLeaseHeader(value, 'answer'),
    schema: leaseHeader,
    valid: {
      jobId: 'a',
      attempt: 1,
      token: 't',
      executionTimeoutMs: 1_000,
      solo: false,
      submittedAt: 5.25,
    },
  },
  'traced lease': {
    read: (value) => readLeaseHeader(value, 'answer'),
    schema: leaseHeader,
    valid: {
      jobId: 'a',
      attempt: 1,
      token: 't',
      executionTimeoutMs: 1_000,
      solo: false,
      submittedAt: 5.25,
      traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
      tracestate: 'vendor=state',
    },
  },
  renewal: {
    read: readRenewReply,
    schema: renewReply,
    valid: { ended: [{ ...ended, verdict: 'cancelled' }, ended], drain: true },
  },
  'report replies': {
    read: readReportReplies,
    schema: z.array(reportReply),
    valid: [
      { answer: 'applied' },
      { answer: 'duplicate' },
      { answer: 'gap', expected: 4 },
      { answer: 'superseded' },
      { answer: 'gone' },
    ],
  },
};

interface Place {
  /** As an error calls it. */
  path: string;
  /** The whole value, with another one in this place. */
  put: (other: unknown) => unknown;
}

/** Every place within `value`, that of itself included. */
function listPlaces(value: unknown, path = 'answer'): Place[] {
  const places: Place[] = [{ path, put: (other) => other }];
  if (typeof value !== 'object' || value === null) return places;
  for (const [name, member] of Object.entries(value)) {
    const memberPath = Array.isArray(value) ? `${path}[${name}]` : `${path}.${name}`;
    for (const inner of listPlaces(member, memberPath)) {
      const put = (other: unknown) =>
        Array.isArray(value)
          ? value.with(Number(name), inner.put(other))
          : { ...value, [name]: inner.put(other) };
      places.push({ path: inner.path, put });
    }
  }
  return places;
}

const cases = Object.entries(answers).flatMap(([name, { read, valid }]) =>
  listPlaces(valid).map(({ path, put }) => ({ name, path, put, read })),
);

/** What lies on this side or that of a rule. */
const odd = [
  ...[undefined, null, '', 'x'.repeat(64), 'x'.repeat(65), 'x'.repeat(129), 'kept', 'gap', 'gone'],
  ...[Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, 0.5, -1, 0, 1],
];

function refusalOf(act: () => unknown): string {
  try {
    return `taken: ${JSON.stringify(act())}`;
  } catch (error) {
    if (error instanceof AnswerError) return error.message;
    throw error;
  }
}

describe('an answer of the platform', () => {
  it.each(Object.entries(answers))(
    'that is a %s is accepted unchanged',
    (_name, { read, valid }) => {
      expect(read(valid)).toEqual(valid);
    },
  );

  it.each(cases)('that is a $name without a valid $path is refused by path', (one) => {
    for (const other of [undefined, null]) {
      expect(refusalOf(() => one.read(one.put(other)))).toEqual(errorAt(one.path));
    }
  });

  it.each([
    ['welcome', { protocol: 1.5 }, 'answer.protocol'],
    ['lease', { attempt: 0 }, 'answer.attempt'],
    ['lease', { solo: 'true' }, 'answer.solo'],
    ['lease', { token: '' }, 'answer.token'],
    ['renewal', { ended: {} }, 'answer.ended'],
    ['renewal', { ended: [{ ...ended, verdict: 'kept' }] }, 'answer.ended[0].verdict'],
  ])('that is a %s with %j is refused by path', (name, change, path) => {
    const { read, valid } = answers[name] ?? expect.unreachable();
    expect(refusalOf(() => read(Object.assign({}, valid, change)))).toEqual(errorAt(path));
  });

  it.each(Object.entries(answers))(
    'that is a %s with any change is accepted or refused like by its schema',
    (_name, { read, schema, valid }) => {
      const places = listPlaces(valid);
      const judgeAlike = (place: Place, other: unknown) => {
        const value = place.put(other);
        const checked = schema.safeParse(value);
        if (checked.success) expect(read(value)).toEqual(checked.data);
        else expect(() => read(value)).toThrow(AnswerError);
      };
      for (const place of places) for (const other of odd) judgeAlike(place, other);
      fc.assert(fc.property(fc.constantFrom(...places), fc.jsonValue(), judgeAlike));
    },
  );

  it('may have unknown members, which are dropped', () => {
    expect(readReportReplies([{ answer: 'gone', expected: 3, since: 1 }])).toEqual([
      { answer: 'gone' },
    ]);
  });
});

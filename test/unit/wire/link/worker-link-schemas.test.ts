// The schemas and the types of the same messages: neither has a member that the other has not. The
// compiler is what fails here; for Vitest alone these tests are empty.

import { describe, expect, expectTypeOf, it } from 'vitest';
import type { z } from 'zod';
import type { RunRequest } from '../../../../src/wire/job/job.ts';
import type { runRequest } from '../../../../src/wire/job/job-schemas.ts';
import type * as link from '../../../../src/wire/link/worker-link.ts';
import type * as schemas from '../../../../src/wire/link/worker-link-schemas.ts';
import {
  isCompletedReport,
  isLeaseRef,
  isRenewedLease,
  isToken,
  renewRequest,
  reportHeader,
  takeRequest,
  workerBye,
} from '../../../../src/wire/link/worker-link-schemas.ts';
import { fc } from '../../../support/properties.ts';

/** One object type instead of an intersection. */
type Flat<T> = T extends unknown ? { [Member in keyof T]: T[Member] } : never;

type Checked<Name extends keyof typeof schemas> = z.infer<(typeof schemas)[Name]>;

describe('the output of a schema', () => {
  it('has exactly the type of the message', () => {
    expectTypeOf<z.infer<typeof runRequest>>().toEqualTypeOf<RunRequest>();
    expectTypeOf<Checked<'workerIdentity'>>().toEqualTypeOf<link.WorkerIdentity>();
    expectTypeOf<Checked<'workerHello'>>().toEqualTypeOf<link.WorkerHello>();
    expectTypeOf<Checked<'workerWelcome'>>().toEqualTypeOf<link.WorkerWelcome>();
    expectTypeOf<Checked<'takeRequest'>>().toEqualTypeOf<link.TakeRequest>();
    expectTypeOf<Checked<'leaseHeader'>>().toEqualTypeOf<link.LeaseHeader>();
    expectTypeOf<Checked<'renewRequest'>>().toEqualTypeOf<link.RenewRequest>();
    expectTypeOf<Checked<'renewReply'>>().toEqualTypeOf<link.RenewReply>();
    expectTypeOf<Checked<'reportHeader'>>().toEqualTypeOf<Flat<link.ReportHeader>>();
    expectTypeOf<Checked<'reportReply'>>().toEqualTypeOf<link.ReportReply>();
    expectTypeOf<Checked<'workerBye'>>().toEqualTypeOf<link.WorkerBye>();
  });
});

const COMPLETED = {
  ...{ jobId: 'job', attempt: 1, token: 'token', seq: 2, kind: 'outcome' },
  outcome: { kind: 'completed', executionMs: 12.5, output: 'value' },
};

const odd = fc.constantFrom<unknown>(
  ...[undefined, null, 0, -1, 1.5, 2 ** 53, 2 ** 53 - 1, Number.NaN, Infinity, true, [], {}],
  ...[
    '',
    'x',
    'x'.repeat(64),
    'x'.repeat(65),
    'x'.repeat(128),
    'x'.repeat(129),
    'chunks',
    'failed',
  ],
  ...[COMPLETED.outcome, { ...COMPLETED.outcome, kind: 'cancelled', stopped: 'signal' }],
);

const names = [
  ...Object.keys(COMPLETED),
  'traceparent',
  'recycle',
  'body',
  '__proto__',
  'constructor',
];
const outcomeNames = [...Object.keys(COMPLETED.outcome), 'stopped', '__proto__', 'x'];

/** A copy with one member changed or added, or removed for undefined. */
function change<T extends object>(value: T, name: string, member: unknown): object {
  const entries = Object.entries(value).filter(([each]) => each !== name);
  // Unlike an assignment, fromEntries makes an own member of the name __proto__, as JSON.parse does.
  return Object.fromEntries(member === undefined ? entries : [...entries, [name, member]]);
}

const changed = fc.oneof(
  fc
    .tuple(fc.constantFrom(...names), odd, fc.constantFrom(...names), odd)
    .map(([a, x, b, y]) => change(change(COMPLETED, a, x), b, y)),
  fc
    .tuple(fc.constantFrom(...outcomeNames), odd)
    .map(([name, member]) => change(COMPLETED, 'outcome', change(COMPLETED.outcome, name, member))),
);

describe('the report of a completed job', () => {
  it('is recognised, with and without a trace, for all outputs', () => {
    expect(isCompletedReport(COMPLETED)).toBe(true);
    expect(isCompletedReport({ ...COMPLETED, traceparent: 'x'.repeat(55) })).toBe(true);
    expect(
      isCompletedReport(change(COMPLETED, 'outcome', { ...COMPLETED.outcome, output: 'chunks' })),
    ).toBe(true);
  });

  it('is one that the schema accepts unchanged', () => {
    let recognised = 0;
    fc.assert(
      fc.property(changed, (header) => {
        if (!isCompletedReport(header)) return;
        recognised += 1;
        expect(reportHeader.parse(header)).toEqual(header);
        expect(Object.keys(header).sort()).toEqual(Object.keys(reportHeader.parse(header)).sort());
      }),
      { numRuns: 2_000 },
    );
    expect(recognised).toBeGreaterThan(20);
  });

  it.each([null, 1, 'x', [], {}])('is not %j', (value) => {
    expect(isCompletedReport(value)).toBe(false);
  });
});

describe('a token', () => {
  const take = { workerId: 'w', incarnation: 1, takeId: 't', max: 1, waitMs: 0 };

  it('is what a take accepts in its list', () => {
    fc.assert(
      fc.property(fc.array(odd, { maxLength: 3 }), (held) => {
        const checked = takeRequest.safeParse({ ...take, held });
        expect(checked.success).toBe(held.every(isToken));
        if (checked.success) expect(checked.data.held).toEqual(held);
      }),
    );
  });
});

describe('a lease in a list', () => {
  const self = { workerId: 'w', incarnation: 1 };
  const leaseNames = ['jobId', 'attempt', 'token', 'stopping', 'delivering', '__proto__', 'x'];
  // In front of it, one that has to be checked with the schema.
  const other = { jobId: 'j', attempt: 1, token: 't', stopping: false, x: 1 };
  const changedLease = (lease: object) =>
    fc
      .tuple(fc.constantFrom(...leaseNames), odd, fc.constantFrom(...leaseNames), odd)
      .map(([a, x, b, y]) => change(change(lease, a, x), b, y));

  it.each([
    {
      ...{ kind: 'of an outbox', lease: { jobId: 'j', attempt: 1, token: 't' } },
      isCommon: isLeaseRef,
      read: (outbox: unknown[]) => workerBye.parse({ ...self, reason: 'drained', outbox }).outbox,
    },
    {
      ...{ kind: 'of a renewal', lease: { jobId: 'j', token: 't', stopping: false } },
      isCommon: isRenewedLease,
      read: (leases: unknown[]) => renewRequest.parse({ ...self, waitMs: 0, leases }).leases,
    },
  ])('$kind that is recognised is one that the schema accepts unchanged', (each) => {
    expect(each.isCommon(each.lease)).toBe(true);
    fc.assert(
      fc.property(changedLease(each.lease), (lease) => {
        if (each.isCommon(lease)) expect(each.read([other, lease])[1]).toStrictEqual(lease);
      }),
      { numRuns: 1_000 },
    );
  });
});

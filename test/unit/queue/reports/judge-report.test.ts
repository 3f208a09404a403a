// How the queue answers a report before it reads the content.
import { describe, expect, it } from 'vitest';
import { judgeReport } from '../../../../src/queue/lifecycle/lifecycle.ts';
import type { ReportHeader } from '../../../../src/wire/link/worker-link.ts';
import { makeLease, type StateName, states } from '../../../support/store/job-states.ts';

const held = { attempt: 2, token: 'token-2' };
const kinds: ReportHeader['kind'][] = ['chunks', 'progress', 'log', 'outcome'];
const live: StateName[] = ['lostAsFailure', 'lostAsRelease', 'unstarted', 'running'];
const kept: StateName[] = ['failedKept', 'cancelledKept', 'timedOutKept'];
const free: StateName[] = ['queued', 'delayed', 'completed', 'failed', 'cancelled', 'timedOut'];

function at(name: StateName, lastSeq: number) {
  return { ...states[name], lastSeq };
}

describe.each(kinds)('a report of kind %s', (kind) => {
  it('is answered with gone if the job does not exist', () => {
    expect(judgeReport(undefined, { ...held, kind, seq: 1 })).toEqual({ answer: 'gone' });
  });

  it.each(live)('is applied in order to a job that is %s', (name) => {
    expect(judgeReport(at(name, 4), { ...held, kind, seq: 5 })).toBe('apply');
  });

  it.each(live)('is a duplicate if it was already applied to a job that is %s', (name) => {
    expect(judgeReport(at(name, 4), { ...held, kind, seq: 4 })).toEqual({ answer: 'duplicate' });
    expect(judgeReport(at(name, 4), { ...held, kind, seq: 1 })).toEqual({ answer: 'duplicate' });
  });

  it.each(live)('is a gap that names the missing report, for a job that is %s', (name) => {
    const expected = { answer: 'gap', expected: 5 };
    expect(judgeReport(at(name, 4), { ...held, kind, seq: 6 })).toEqual(expected);
  });

  it.each(free)('is superseded after the lease has ended, for a job that is %s', (name) => {
    expect(judgeReport(at(name, 4), { ...held, kind, seq: 5 })).toEqual({ answer: 'superseded' });
  });

  it.each(free)('is a duplicate if it ended the lease of a job that is %s', (name) => {
    expect(judgeReport(at(name, 4), { ...held, kind, seq: 4 })).toEqual({ answer: 'duplicate' });
  });

  it('is superseded by a newer attempt, whatever its number', () => {
    const job = {
      ...states.running,
      attempt: 3,
      lastSeq: 9,
      lease: makeLease({ token: 'token-3' }),
    };
    expect(judgeReport(job, { ...held, kind, seq: 1 })).toEqual({ answer: 'superseded' });
    expect(judgeReport(job, { ...held, kind, seq: 10 })).toEqual({ answer: 'superseded' });
  });

  it.each([...live, ...kept])(
    'is superseded with a wrong attempt, for a job that is %s',
    (name) => {
      for (const attempt of [1, 3]) {
        const wrong = { ...held, kind, attempt };
        expect(judgeReport(at(name, 4), { ...wrong, seq: 4 })).toEqual({ answer: 'superseded' });
        expect(judgeReport(at(name, 4), { ...wrong, seq: 5 })).toEqual({ answer: 'superseded' });
      }
    },
  );

  it.each([...live, ...kept])('is superseded with a wrong token, for a job that is %s', (name) => {
    const foreign = { ...held, kind, token: 'token-9' };
    expect(judgeReport(at(name, 4), { ...foreign, seq: 4 })).toEqual({ answer: 'superseded' });
    expect(judgeReport(at(name, 4), { ...foreign, seq: 5 })).toEqual({ answer: 'superseded' });
  });

  it.each(kept)('frees the slot only as an outcome, for a job that is %s', (name) => {
    const expected = kind === 'outcome' ? 'apply' : { answer: 'superseded' };
    expect(judgeReport(at(name, 4), { ...held, kind, seq: 5 })).toEqual(expected);
    expect(judgeReport(at(name, 4), { ...held, kind, seq: 9 })).toEqual(expected);
  });
});

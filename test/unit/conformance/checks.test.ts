// Running checks: each has its own verdict, and what hangs on a basic one that fails is left out.
import { describe, expect, it } from 'vitest';
import {
  type CheckResult,
  type ConformanceCheck,
  chooseChecks,
  demand,
  demandSame,
  NotApplicable,
  runConformanceChecks,
  within,
} from '../../../src/conformance/checks.ts';

const good: ConformanceCheck<object> = { area: 'a', rule: 'is good', run: () => {} };
const bad: ConformanceCheck<object> = {
  area: 'b',
  rule: 'is bad',
  run: () => demand(false, 'it is bad'),
};
const basic: ConformanceCheck<object> = { ...bad, rule: 'is there', isBasic: true };

async function run(...checks: ConformanceCheck<object>[]): Promise<string[]> {
  const told: CheckResult[] = [];
  const rows = await runConformanceChecks(checks, {}, (row) => told.push(row));
  expect(told).toEqual(rows);
  return rows.map(({ detail = '', result, rule }) => `${rule}: ${result} ${detail}`.trim());
}

describe('checks', () => {
  it('continue after one that fails', async () => {
    expect(await run(bad, good)).toEqual(['is bad: fails it is bad', 'is good: holds']);
  });

  it('are skipped when a basic one fails', async () => {
    expect(await run(basic, good)).toEqual([
      'is there: fails it is bad',
      'is good: left out needs "is there", which fails',
    ]);
  });

  it('fail by anything they throw, and are skipped if they do not apply', async () => {
    const broken = { ...good, run: () => Promise.reject(new TypeError('no such thing')) };
    const foreign = { ...good, run: () => Promise.reject(new NotApplicable('not here')) };
    expect(await run(broken, foreign)).toEqual([
      'is good: fails no such thing',
      'is good: left out not here',
    ]);
  });

  it('are chosen by their area, and the basic ones always run', () => {
    expect(chooseChecks([basic, bad, good], ['a'])).toEqual([basic, good]);
    expect(chooseChecks([basic, bad, good], [])).toEqual([basic, bad, good]);
  });

  it('say what was expected and what was found', () => {
    expect(() => demandSame({ a: 1 }, { a: 2 }, 'the answer')).toThrow(
      'the answer: expected {"a":2}, got {"a":1}',
    );
  });

  it('wait up to their limit', async () => {
    const late = within(1, 'nothing came', new Promise(() => {}));
    await expect(late).rejects.toThrow(/^nothing came.*\b0\.001 s/);
  });
});

// Runs `millrace conformance` on the Millrace worker over every transport, and on workers with a fault that
// takes long to detect.
import { describe, expect, it } from 'vitest';
import {
  judgeConformance,
  LIMIT_MS,
  ODD_WORKER,
  OWN_WORKER,
} from '../support/runs/conformance-run.ts';

describe('the Millrace worker', () => {
  it.each([
    { speaks: 'HTTP', args: ['--link', 'http'], atLeast: 24 },
    { speaks: 'gRPC', args: ['--link', 'grpc'], atLeast: 24 },
    { speaks: "RunPod's protocol", args: ['--protocol', 'runpod'], atLeast: 15 },
  ])('passes over $speaks', { timeout: LIMIT_MS }, async ({ args, atLeast }) => {
    const { count, ...verdict } = await judgeConformance('worker', ...args, '--', ...OWN_WORKER);
    expect(verdict).toEqual({ code: 0, holds: true, failing: [] });
    expect(count).toBeGreaterThanOrEqual(atLeast);
  });
});

describe('a worker with one fault', () => {
  it.each([
    ['ignores cancels', 'cancel', 'ends the handler of a cancelled job and reports it'],
    ['does not repeat reports', 'report', 'repeats an outcome unchanged until it is answered'],
  ])('fails if it %s', { timeout: LIMIT_MS }, async (oddity, area, rule) => {
    const worker = [...ODD_WORKER, oddity];
    const verdict = await judgeConformance('worker', '--only', area, '--', ...worker);
    expect(verdict).toMatchObject({ code: 1, holds: false });
    expect(verdict.failing).toContain(rule);
  });
});

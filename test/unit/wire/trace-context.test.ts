// What of the two headers is taken, by the rules and examples of W3C Trace Context.
import { describe, expect, it } from 'vitest';
import { nameTrace, readTraceContext } from '../../../src/wire/trace-context.ts';

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const spanId = '00f067aa0ba902b7';
const valid = `00-${traceId}-${spanId}-01`;

describe('a traceparent', () => {
  it.each([valid, `00-${traceId}-${spanId}-00`, `00-${traceId}-${spanId}-ff`])(
    'is unchanged if its version is 00: %s',
    (traceparent) => {
      expect(readTraceContext(traceparent)).toEqual({ traceparent });
    },
  );

  it.each([
    [`01-${traceId}-${spanId}-01`, `00-${traceId}-${spanId}-01`],
    [`cc-${traceId}-${spanId}-01-what-the-future-brings`, `00-${traceId}-${spanId}-01`],
    [`fe-${traceId}-${spanId}-ff-`, `00-${traceId}-${spanId}-03`],
  ])('is converted from a newer version to version 00 with its flags: %s', (newer, traceparent) => {
    expect(readTraceContext(newer)).toEqual({ traceparent });
  });

  it.each([
    ['is missing', undefined],
    ['is empty', ''],
    ['is repeated', `${valid}, ${valid}`],
    ['is a list', [valid]],
    ['has upper-case letters', valid.toUpperCase()],
    ['has a forbidden version', `ff-${traceId}-${spanId}-01`],
    ['has no version', `-${traceId}-${spanId}-01`],
    ['is of version 00 and longer', `${valid}-01`],
    ['continues without a dash in a newer version', `01-${traceId}-${spanId}-01.1`],
    ['has a trace id of zeros', `00-${'0'.repeat(32)}-${spanId}-01`],
    ['has a span id of zeros', `00-${traceId}-${'0'.repeat(16)}-01`],
    ['has a short trace id', `00-${traceId.slice(1)}-${spanId}-01`],
    ['has a long span id', `00-${traceId}-${spanId}0-01`],
    ['has flags of one digit', `00-${traceId}-${spanId}-1`],
    ['has spaces around it', ` ${valid} `],
  ])('is ignored with the tracestate if it %s', (_, traceparent) => {
    expect(readTraceContext(traceparent, 'a=1')).toBeUndefined();
  });
});

describe('a tracestate', () => {
  const many = (count: number) => Array.from({ length: count }, (_, i) => `k${i}=v`).join(',');

  it.each([
    ['rojo=00f067aa0ba902b7', 'rojo=00f067aa0ba902b7'],
    ['rojo=1,congo=t61rcWkgMzE', 'rojo=1,congo=t61rcWkgMzE'],
    ['a=1 , \tb=2,,', 'a=1,b=2'],
    ['fw529a3039@dt=FfSXYQ', 'fw529a3039@dt=FfSXYQ'],
    ['0a-b_c*d/e= spaced value', '0a-b_c*d/e= spaced value'],
    [many(32), many(32)],
    [`a=${'x'.repeat(256)},b=${'x'.repeat(251)}`, `a=${'x'.repeat(256)},b=${'x'.repeat(251)}`],
  ])('is accepted: %s', (given, tracestate) => {
    expect(readTraceContext(valid, given)).toEqual({ traceparent: valid, tracestate });
  });

  it.each([
    ['is missing', undefined],
    ['is empty', ' , '],
    ['has a member without a value', 'a=1,b'],
    ['has an empty value', 'a='],
    ['has an upper-case name', 'A=1'],
    ['has no name', '=1'],
    ['has an equals sign in a value', 'a=1=2'],
    ['has a non-ASCII character', 'a=é'],
    ['names one system twice', 'a=1,a=2'],
    ['has more than 32 members', many(33)],
    ['is longer than 512 characters', `a=${'x'.repeat(256)},b=${'x'.repeat(252)}`],
    ['has a value of more than 256 characters', `a=${'x'.repeat(257)}`],
  ])('is dropped if it %s, and the traceparent is kept', (_, given) => {
    expect(readTraceContext(valid, given)).toEqual({ traceparent: valid });
  });
});

it('appears in log lines with its trace ID', () => {
  expect(nameTrace(valid)).toEqual({ trace_id: traceId });
  expect(nameTrace(undefined)).toEqual({});
});

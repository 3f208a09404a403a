// Texts of the console: lines of a log, and where a text stops being JSON.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readLines } from '../../../console/src/pages/job/log-lines.ts';
import { findJsonFault } from '../../../console/src/parts/job/json-fault.ts';
import { readInput } from '../../../console/src/parts/job/json-input.ts';

it.each([
  [1_795_734_000_000, 1_795_734_000_000],
  [1_795_734_000_000_000_000, undefined],
  [-1e300, undefined],
  ['2026-11-26', undefined],
])('have the time %s as %s: the page can show only times of a Date', (time, at) => {
  const [line] = readLines(`${JSON.stringify({ level: 30, time, msg: 'a' })}\n`);
  expect(line).toMatchObject({ at, text: 'a' });
});

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

describe('a fault in a JSON text', () => {
  it.each([
    ['{\n"act": \n}', 10],
    ['{"a": 1,}', 8],
    ['{"a" 1}', 5],
    ['{a: 1}', 1],
    ['[1 2]', 3],
    ['[1,]', 3],
    ['{"a": tru}', 6],
    ['{"a": 01}', 7],
    ['"a\nb"', 2],
    ['"\\x"', 1],
    ['{"a": 1} x', 9],
    ['[}', 1],
    ['{"a": "open', 11],
    ['{"a": 1', 7],
    ['', 0],
  ])('lies for %j at offset %i', (text, offset) => {
    expect(findJsonFault(text)).toBe(offset);
  });

  it('is found exactly in the texts that are no JSON', () => {
    const edited = fc
      .tuple(fc.json(), fc.nat(), fc.constantFrom('', ...'{}[]:,"\\ \n-.0e1tx\u0001é'), fc.nat(2))
      .map(([text, at, inserted, removed]) => {
        const cut = at % (text.length + 1);
        return text.slice(0, cut) + inserted + text.slice(cut + removed);
      });
    const check = (text: string) => {
      const fault = findJsonFault(text);
      expect(fault === undefined).toBe(isJson(text));
    };
    fc.assert(fc.property(edited, check), { numRuns: 2_000 });
    fc.assert(fc.property(fc.string(), check));
  });

  it('is found in a long text without a deep stack', () => {
    expect(findJsonFault(`"${'\\n'.repeat(1_000_000)}`)).toBe(2_000_001);
    expect(findJsonFault('['.repeat(100_000))).toBe(100_000);
  });

  it('is told with its line, its column and its text', () => {
    expect(readInput('{\n  "a": 1,\n  b: 2\n}')).toEqual({
      problem: 'The input is not JSON: "b" does not belong here.',
      place: { offset: 14, line: 3, column: 3, text: '  b: 2', wrong: 2 },
    });
    const cut = { problem: expect.stringMatching(/ends too early/), place: { line: 1, column: 6 } };
    expect(readInput('{"a":')).toMatchObject(cut);
    const long = readInput(`{"a": "${'x'.repeat(500)}" "b"}`);
    expect('place' in long && long.place?.text.length).toBeLessThanOrEqual(120);
  });
});

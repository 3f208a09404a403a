// Reads the JSON text of a job's input, and says where it is wrong.
import { findJsonFault } from './json-fault.ts';

/** Where a text is wrong: line and column count from 1. */
export interface Place {
  offset: number;
  line: number;
  column: number;
  /** The line, or the part of it around the column. */
  text: string;
  /** Index of the wrong character in `text`; its length if the text ends too early. */
  wrong: number;
}

export type ReadInput = { value: object } | { problem: string; place?: Place };

const SHOWN_CHARACTERS = 120;

export function readInput(text: string): ReadInput {
  let value: unknown;
  try {
    value = JSON.parse(text.trim() === '' ? '{}' : text);
  } catch {
    const offset = findJsonFault(text) ?? text.length;
    return { problem: explain(text, offset), place: locate(text, offset) };
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { value };
  return { problem: 'The input must be an object: { … }' };
}

function explain(text: string, offset: number): string {
  const found = text[offset];
  if (found === undefined) return 'The input is not JSON: it ends too early.';
  return `The input is not JSON: ${JSON.stringify(found)} does not belong here.`;
}

function locate(text: string, offset: number): Place {
  const before = text.slice(0, offset).split('\n');
  const column = (before.at(-1) ?? '').length + 1;
  const end = text.indexOf('\n', offset);
  const line = text.slice(offset - column + 1, end === -1 ? text.length : end);
  const from = Math.max(0, column - SHOWN_CHARACTERS / 2);
  const shown = line.slice(from, from + SHOWN_CHARACTERS);
  return { offset, line: before.length, column, text: shown, wrong: column - 1 - from };
}

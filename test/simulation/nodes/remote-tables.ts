// Tables at a simulated server: each verb is a statement, which the server carries out on its own tables.
import type { Query, Step } from '../../../src/store/store.ts';
import type { Tables } from '../../../src/store/tables.ts';
import { MemoryTables, type MemoryTablesOptions } from '../memory-tables.ts';

const READ = 'select simulated ?';
const WRITE = 'update simulated ?';

const WRITING = /^(?:add|append|begin|change|delete|drop|insert|postpone|put|remove)/;

/** Carries a statement out; throws if the database refuses it. */
export type ServerCall = (tables: MemoryTables) => unknown;

/** Statements on their way, by the number that is their parameter. */
export class ServerCalls {
  readonly #calls = new Map<number, ServerCall>();
  #last = 0;

  add(call: ServerCall): number {
    this.#calls.set(++this.#last, call);
    return this.#last;
  }

  take(number: number): ServerCall {
    const call = this.#calls.get(number);
    if (!call) throw new Error(`statement ${number} arrived twice`);
    this.#calls.delete(number);
    return call;
  }
}

/** What the server does in the transaction, unless it is undone. */
export function* writeRemotely(calls: ServerCalls, call: ServerCall): Step<void> {
  yield describe(WRITE, calls, call);
}

export function createRemoteTables(calls: ServerCalls, options: MemoryTablesOptions): Tables {
  // Only its shape matters.
  return new Proxy<Tables>(new MemoryTables(options), {
    get(target, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== 'function') return member;
      return (...args: unknown[]) => askServer(calls, name, args);
    },
  });
}

function* askServer(calls: ServerCalls, name: string | symbol, given: unknown[]): Step<unknown> {
  // The statement holds the values of this moment.
  const args = given.map(copy);
  const call = (tables: MemoryTables) => {
    const verb: unknown = Reflect.get(tables, name);
    if (typeof verb !== 'function') throw new Error(`${String(name)} is no verb`);
    return runSteps(Reflect.apply(verb, tables, args));
  };
  const [row] = yield describe(WRITING.test(String(name)) ? WRITE : READ, calls, call);
  return row?.['value'];
}

function describe(sql: string, calls: ServerCalls, call: ServerCall): Query {
  return { sql, params: [calls.add(call)] };
}

function runSteps<T>(steps: Step<T>): T {
  const step = steps.next();
  if (!step.done) throw new Error(`a query that only SQL could answer: ${step.value.sql}`);
  return step.value;
}

/** Jobs never change, but payloads and counters may. */
function copy(value: unknown): unknown {
  if (value instanceof Uint8Array) return new Uint8Array(value);
  if (Array.isArray(value)) return value.map(copy);
  if (value instanceof Map) return new Map([...value].map(([key, each]) => [key, copy(each)]));
  if (typeof value !== 'object' || value === null || isJob(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, copy(each)]));
}

function isJob(value: object): boolean {
  return 'lastSeq' in value;
}

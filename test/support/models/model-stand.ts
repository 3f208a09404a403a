// A model process of a test, with what it logged.
import { resolve } from 'node:path';
import {
  createModelProcess,
  type ModelProcess,
  type ModelProcessOptions,
  type ProcessLog,
} from 'millrace/process';
import { onTestFinished } from 'vitest';
import { readProcess } from '../../../src/base/process/process-table.ts';

export interface LogEntry {
  level: string;
  message: string;
  fields: object;
}

export class RecordedLog implements ProcessLog {
  readonly entries: LogEntry[] = [];
  debug = this.#record('debug');
  info = this.#record('info');
  warn = this.#record('warn');
  error = this.#record('error');

  get messages(): string[] {
    return this.entries.map(({ message }) => message);
  }

  #record(level: string) {
    return (fields: object, message: string) => {
      this.entries.push({ level, message, fields });
    };
  }
}

export const MODEL = resolve(import.meta.dirname, 'calls.py');

export interface ModelStand {
  model: ModelProcess;
  log: RecordedLog;
}

/** A ready process of calls.py, which ends with the test. */
export async function startModel(options: Partial<ModelProcessOptions> = {}): Promise<ModelStand> {
  const stand = await openModel(options);
  onTestFinished(() => stand.model.stop());
  return stand;
}

/** A ready process of calls.py; the caller stops it. */
export async function openModel(options: Partial<ModelProcessOptions> = {}): Promise<ModelStand> {
  const log = new RecordedLog();
  const model = createModelProcess({ command: 'python3', args: [MODEL], ...options });
  await model.start({ log });
  return { model, log };
}

/** True if a process with that ID runs; a zombie does not. */
export function isRunning(pid: number): boolean {
  const entry = readProcess(pid);
  return entry !== undefined && !entry.isDead;
}

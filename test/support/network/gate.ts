// Synchronises a test and a handler in another process by files.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../until.ts';

let made = 0;

export class Gate {
  readonly path: string;

  constructor(folder: string) {
    made += 1;
    this.path = join(folder, `gate-${made}`);
  }

  open(): void {
    writeFileSync(this.path, '');
  }

  /** Lines written to the file. */
  get lines(): string[] {
    if (!existsSync(this.path)) return [];
    return readFileSync(this.path, 'utf8').split('\n').slice(0, -1);
  }

  /** Resolves with the lines when this number exists. */
  untilLines(count: number): Promise<string[]> {
    return until(() => this.lines.length >= count && this.lines);
  }
}

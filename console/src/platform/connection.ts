// Whether the platform answers. After a loss, one probe every two seconds looks for it.
import { createStore } from '../parts/store.ts';

export type Connection = 'up' | 'lost';

export const connection = createStore<Connection>('up');

const PROBE_EVERY_MS = 2_000;
let probing: number | undefined;

export function noteAnswer(): void {
  if (probing !== undefined) clearTimeout(probing);
  probing = undefined;
  connection.write('up');
}

export function noteLoss(): void {
  connection.write('lost');
  probing ??= window.setTimeout(probe, PROBE_EVERY_MS);
}

async function probe(): Promise<void> {
  probing = undefined;
  try {
    const { ok } = await fetch('/readyz', { cache: 'no-store' });
    if (ok) noteAnswer();
    else noteLoss();
  } catch {
    noteLoss();
  }
}

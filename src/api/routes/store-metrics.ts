// Metrics of the store for Prometheus.
import { Counter, Gauge, type Registry } from 'prom-client';
import type { StoreStatus } from './store-status.ts';

/** Returns a function that updates these metrics from the store. */
export function registerStoreMetrics(registry: Registry, store: StoreStatus): () => Promise<void> {
  const registers = [registry];
  const failures = new Counter({
    name: 'millrace_store_failures_total',
    help: 'Failures of the disk or the database file since the start of the platform, by SQLite code.',
    labelNames: ['code'],
    registers,
  });
  const writable = new Gauge({
    name: 'millrace_store_writable',
    help: 'Whether new jobs can be stored: 1 or 0.',
    registers,
  });
  const bytes = new Gauge({
    name: 'millrace_store_bytes',
    help: 'Size of the database file and of its write-ahead log.',
    labelNames: ['file'],
    registers,
  });

  return async () => {
    const fault = await store.findFault();
    const sizes = store.measure();
    failures.reset();
    for (const [code, count] of store.failures) failures.inc({ code }, count);
    writable.set(fault === undefined ? 1 : 0);
    bytes.set({ file: 'database' }, sizes.database);
    bytes.set({ file: 'wal' }, sizes.wal);
  };
}

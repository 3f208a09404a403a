// The Prometheus metrics of a worker whose handler runs batches.
import { Counter, Histogram, type Registry } from 'prom-client';
import type { WorkerObserver } from '../worker-observer.ts';

const SIZE_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
const RATIO_BUCKETS = [0.1, 0.25, 0.5, 0.75, 0.9, 1];
const FILL_BUCKETS_S = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 10];

export function observeBatches(registry: Registry): Pick<WorkerObserver, 'batchChanged'> {
  const registers = [registry];
  const addHistogram = (name: string, help: string, buckets: number[]) =>
    new Histogram({ name: `millrace_worker_batch_${name}`, help, buckets, registers });
  const size = addHistogram('size', 'Jobs in a batch at its start.', SIZE_BUCKETS);
  const fill = addHistogram(
    'fill_ratio',
    'Jobs in a batch at its start, as a share of maxSize.',
    RATIO_BUCKETS,
  );
  const wait = addHistogram(
    'fill_wait_seconds',
    'Time from the arrival of the first job of a batch to the start of the batch.',
    FILL_BUCKETS_S,
  );
  const thrown = new Counter({
    name: 'millrace_worker_batches_thrown_total',
    help: 'Batches whose function threw. split: jobs ran again in parts. failed: no job did.',
    labelNames: ['result'],
    registers,
  });
  for (const result of ['split', 'failed']) thrown.inc({ result }, 0);
  return {
    batchChanged(event) {
      if (event.kind !== 'started') return thrown.inc({ result: event.kind });
      size.observe(event.size);
      fill.observe(event.size / event.of);
      wait.observe(Math.max(0, event.waitMs) / 1_000);
    },
  };
}

// Defines the limits of a chunk and turns a yielded value into chunks. json.ts defines JSON values,
// chunk-bytes.ts splits large outputs, and joins their bytes again; chunk-pieces.ts joins their values.
import { isPlainObject, type Json, stringifyJson } from '../json.ts';
import { HEAD, METRICS_KEY, splitJson, viewBuffer } from './chunk-bytes.ts';
import { RESERVED_METRICS } from './chunk-pieces.ts';

/** Largest chunk: bytes of UTF-8, the whole object with its metrics. */
export const MAX_CHUNK_BYTES = 1_000_000;

/** Largest metrics of one chunk: bytes of UTF-8 JSON. */
export const MAX_METRICS_BYTES = 65_536;

export type Metrics = Record<string, number>;

export interface Chunk<Output = Json> {
  output: Output;
  metrics: Metrics;
}

export interface SplitOptions {
  /**
   * Most bytes of one chunk, metrics included. Default MAX_CHUNK_BYTES; at least 80 plus the
   * metrics.
   */
  maxBytes?: number;
}

/**
 * Throws a TypeError unless the metrics are a plain object of finite numbers, without the
 * reserved names, of at most 65,536 bytes as JSON.
 */
export function checkMetrics(metrics: Metrics): void {
  stringifyMetrics(metrics);
}

/**
 * Returns the JSON bytes of one yielded value: one chunk, or several pieces if it is larger than
 * `maxBytes`. The last piece carries the handler's metrics.
 *
 * Throws NotJsonError (paths begin with `output`), TypeError for metrics as checkMetrics does, and
 * RangeError if `maxBytes` cannot hold the metrics and a few bytes of output.
 */
export function encodeChunk(
  output: unknown,
  metrics: Metrics,
  { maxBytes = MAX_CHUNK_BYTES }: SplitOptions = {},
): Buffer[] {
  const metricsText = stringifyMetrics(metrics);
  const tail = `${METRICS_KEY}${metricsText}}`;
  const whole = Buffer.from(`${HEAD}${stringifyJson(output, 'output')}${tail}`);
  if (whole.length <= maxBytes) return [whole];
  const json = whole.subarray(HEAD.length, whole.length - Buffer.byteLength(tail));
  return splitJson({ json, metricsText }, maxBytes);
}

/**
 * Like encodeChunk, for an output that stringifyJson has already converted to JSON bytes; they are
 * neither parsed nor checked.
 */
export function encodeJsonChunk(
  outputJson: Uint8Array,
  metrics: Metrics,
  { maxBytes = MAX_CHUNK_BYTES }: SplitOptions = {},
): Buffer[] {
  const metricsText = stringifyMetrics(metrics);
  const json = viewBuffer(outputJson);
  const tail = Buffer.from(`${METRICS_KEY}${metricsText}}`);
  if (HEAD.length + json.length + tail.length <= maxBytes) {
    return [Buffer.concat([Buffer.from(HEAD), json, tail])];
  }
  return splitJson({ json, metricsText }, maxBytes);
}

/** Splits one chunk into the chunks that clients read. Throws as encodeChunk does. */
export function splitChunk({ output, metrics }: Chunk, options: SplitOptions = {}): Chunk[] {
  return encodeChunk(output, metrics, options).map((bytes) => JSON.parse(bytes.toString()));
}

function stringifyMetrics(metrics: Metrics): string {
  if (!isPlainObject(metrics)) throw new TypeError('metrics must be a plain object of numbers');
  const names = Object.keys(metrics);
  if (names.length === 0) return '{}';
  for (const name of names) checkMetric(metrics, name);
  const text = JSON.stringify(metrics);
  const bytes = text.length * 3 > MAX_METRICS_BYTES ? Buffer.byteLength(text) : 0;
  if (bytes > MAX_METRICS_BYTES) {
    throw new TypeError(`metrics are ${bytes} bytes of JSON, at most ${MAX_METRICS_BYTES} go`);
  }
  return text;
}

function checkMetric(metrics: Metrics, name: string): void {
  const value: unknown = metrics[name];
  if (!Number.isFinite(value)) {
    const shown = typeof value === 'number' ? value : typeof value;
    throw new TypeError(`metrics.${name.slice(0, 100)} must be a finite number, not ${shown}`);
  }
  if (RESERVED_METRICS.some((reserved) => reserved === name)) {
    throw new TypeError(`metrics.${name} is reserved for the pieces of a split output`);
  }
}

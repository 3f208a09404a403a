// Opens the export of traces that the options ask for.
import { hostname } from 'node:os';
import type { Log } from '../../base/log.ts';
import { packageVersion } from '../../base/package-info.ts';
import type { TracingOptions } from '../../queue/tracing/job-tracing.ts';
import { PlatformOptionError } from '../option-error.ts';
import { TraceExporter } from './trace-exporter.ts';

const TRACES_PATH = '/v1/traces';

export interface TraceOptions {
  /** URL of a collector for OTLP over HTTP; without a path, `/v1/traces` is added. */
  url: string;
  /** Headers of each request to it. Default: none. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Share of the jobs without a trace of their client that get one, 0 to 1. Default 1. */
  ratio?: number | undefined;
}

export interface OpenTraces extends TracingOptions {
  close(): Promise<void>;
}

/** @throws PlatformOptionError */
export function openTraces({
  log,
  traces,
  url: ownUrl,
}: {
  log: Log;
  traces?: TraceOptions | undefined;
  /** Names this platform among others. Default: the host. */
  url?: string | undefined;
}): OpenTraces | undefined {
  if (!traces) return undefined;
  const { headers = {}, ratio = 1 } = traces;
  if (!(ratio >= 0 && ratio <= 1)) {
    throw new PlatformOptionError('invalid', 'traces.ratio', `must be from 0 to 1, got ${ratio}`);
  }
  const instance = ownUrl ?? hostname();
  const resource = { name: 'millrace', version: packageVersion(), instance };
  const sink = new TraceExporter({ url: completeUrl(traces.url), headers, resource, log });
  return { sink, ratio, close: () => sink.close() };
}

function completeUrl(given: string): string {
  const url = URL.parse(given);
  if (!url || !/^https?:$/.test(url.protocol)) {
    const problem = `must be an http or https URL such as http://127.0.0.1:4318, got ${given}`;
    throw new PlatformOptionError('invalid', 'traces.url', problem);
  }
  if (url.pathname === '/') url.pathname = TRACES_PATH;
  return url.href;
}

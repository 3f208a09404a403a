// The flags of traces.
import { readFileSync } from 'node:fs';
import type { TraceOptions } from '../../platform/traces/open-traces.ts';
import { integer, type OptionValues, text, UsageError } from '../options.ts';

const MAX_HEADER_FILE_BYTES = 65_536;
const MAX_HEADERS = 32;
const HEADER_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)$/;

export const traceOptions = {
  traceUrl: text({
    placeholder: 'URL',
    env: 'MILLRACE_TRACE_URL',
    help: 'OpenTelemetry collector to which the platform sends spans of jobs, OTLP over HTTP: http://127.0.0.1:4318; default: no traces',
  }),
  traceHeaderFile: text({
    placeholder: 'FILE',
    env: 'MILLRACE_TRACE_HEADER_FILE',
    section: 'advanced',
    help: 'file with headers for the collector, one `Name: value` a line',
  }),
  tracePercent: integer({
    ...{ min: 0, max: 100, default: 100, placeholder: 'N', section: 'advanced' },
    env: 'MILLRACE_TRACE_PERCENT',
    help: 'share of the jobs without a trace of their client that get one, percent; with a traceparent, its sampled flag decides',
  }),
} as const;

/** @throws UsageError */
export function readTraces({
  traceHeaderFile,
  tracePercent,
  traceUrl,
}: OptionValues<typeof traceOptions>): TraceOptions | undefined {
  if (traceUrl === undefined) {
    if (traceHeaderFile !== undefined)
      throw new UsageError('--trace-header-file needs --trace-url');
    return undefined;
  }
  const headers = traceHeaderFile === undefined ? {} : readHeaders(traceHeaderFile);
  return { url: traceUrl, headers, ratio: tracePercent / 100 };
}

/** Errors do not show the lines: they may be secret. @throws UsageError */
function readHeaders(path: string): Record<string, string> {
  const refuse = (problem: string) => new UsageError(`--trace-header-file: ${path} ${problem}`);
  let content: string;
  try {
    content = readFileSync(path, 'utf8');
  } catch (error) {
    throw refuse(`cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (content.length > MAX_HEADER_FILE_BYTES) {
    throw refuse(`has more than ${MAX_HEADER_FILE_BYTES} bytes`);
  }
  const lines = content.split(/\r?\n/).map((line) => line.trim());
  const headers = lines.flatMap((line, index) => {
    if (line === '') return [];
    const [, name = '', value = ''] = HEADER_LINE.exec(line) ?? [];
    if (name === '') throw refuse(`line ${index + 1} must have the form \`Name: value\``);
    return [[name.toLowerCase(), value] as const];
  });
  if (headers.length > MAX_HEADERS) throw refuse(`has more than ${MAX_HEADERS} headers`);
  return Object.fromEntries(headers);
}

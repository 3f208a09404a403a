// Prints what `millrace dev` shows when it is ready: every endpoint with a command to paste.
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fillPath } from '../../wire/routes/route.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';

export interface BannerEndpoint {
  endpointId: string;
  file: string;
  isServed: boolean;
}

export interface BannerOptions {
  version: string;
  url: string;
  /** Undefined if calls need no key. */
  key: string | undefined;
  endpoints: readonly BannerEndpoint[];
  /** Says where jobs are stored. */
  dataNote: string;
}

export function renderBanner(options: BannerOptions): string {
  const { dataNote, endpoints, key, url, version } = options;
  const blocks = [
    [`Millrace ${version} is ready at ${url}`, dataNote].join('\n'),
    ...(key === undefined ? [] : [`API key: ${key}`]),
    ...endpoints.map((endpoint) => describeEndpoint(endpoint, options)),
  ];
  const shown = chooseStream(endpoints);
  if (shown) blocks.push(`Stream the output:\n  ${streamCommand(shown, options)}`);
  return `${blocks.join('\n\n')}\n`;
}

/** Chooses, among the endpoints that seem to stream, the one with the shortest example. */
function chooseStream(endpoints: readonly BannerEndpoint[]): BannerEndpoint | undefined {
  const rated = endpoints
    .map((endpoint) => ({ endpoint, source: readSource(endpoint.file) }))
    .filter(({ endpoint, source }) => endpoint.isServed && /\byield\b/.test(source))
    .map(({ endpoint, source }) => ({ endpoint, length: showExample(source).length }))
    .sort((a, b) => a.length - b.length);
  return rated[0]?.endpoint ?? endpoints[0];
}

function showExample(source: string): string {
  return JSON.stringify({ input: readExampleInput(source) });
}

/** Says where the endpoint is and how to call it. */
export function describeEndpoint(
  endpoint: BannerEndpoint,
  { key, url }: Pick<BannerOptions, 'key' | 'url'>,
): string {
  const { endpointId, file, isServed } = endpoint;
  const place = relative(process.cwd(), file);
  const state = isServed ? '' : '  (no worker, see the log)';
  const request = curlRequest(
    url + fillPath(JOB_ROUTES.runJobSync, { endpoint: endpointId }),
    file,
    key,
  );
  return `${endpointId}  ${place}${state}\n  ${request}`;
}

function curlRequest(url: string, file: string, key: string | undefined): string {
  const body = showExample(readSource(file));
  const parts = ['curl -s', url, "-H 'Content-Type: application/json'", ...keyHeader(key)];
  return [...parts, '-d', quote(body)].join(' ');
}

function streamCommand(endpoint: BannerEndpoint, { key, url }: BannerOptions): string {
  const { endpointId, file } = endpoint;
  const submit = curlRequest(
    url + fillPath(JOB_ROUTES.runJob, { endpoint: endpointId }),
    file,
    key,
  );
  const takeId = String.raw`sed 's/.*"id":"\([^"]*\)".*/\1/'`;
  const stream = fillPath(JOB_ROUTES.streamJob, { endpoint: endpointId, job: 'JOB' });
  const address = `"${url}${stream.replace(/JOB$/, () => `$(${submit} | ${takeId})`)}"`;
  return ["curl -sN -H 'Accept: text/event-stream'", ...keyHeader(key), address].join(' ');
}

function keyHeader(key: string | undefined): string[] {
  return key === undefined ? [] : [`-H 'Authorization: Bearer ${key}'`];
}

/** Quotes for a POSIX shell. */
function quote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function readSource(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/**
 * Finds an example input for a handler: the first line of its opening comment that is a JSON
 * object, without what follows an arrow. Default: an empty object.
 */
export function readExampleInput(source: string): object {
  for (const line of source.split('\n')) {
    const comment = /^\s*(?:\/\/|\/?\*+)\s?(.*?)(?:\*\/)?\s*$/.exec(line);
    if (!comment && line.trim() !== '') break;
    const [before = ''] = (comment?.[1] ?? '').split('→');
    const value = parseObject(before.trim());
    if (value) return value;
  }
  return {};
}

function parseObject(text: string): object | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

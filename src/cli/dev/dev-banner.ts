// Prints what `millrace dev` shows when it is ready: every endpoint with a command to paste.
import { relative } from 'node:path';
import { quoteWord } from '../../base/text/shell-words.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { chooseExample, type JsonSchema, readSource } from '../example-input.ts';

interface BannerEndpoint {
  endpointId: string;
  file: string;
  isServed: boolean;
  /** Schema of its inputs; null if none is known. */
  schema: JsonSchema | null;
}

interface BannerOptions {
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
    .filter(({ file, isServed }) => isServed && /\byield\b/.test(readSource(file)))
    .map((endpoint) => ({ endpoint, length: showExample(endpoint).length }))
    .sort((a, b) => a.length - b.length);
  return rated[0]?.endpoint ?? endpoints[0];
}

function showExample({ file, schema }: BannerEndpoint): string {
  return JSON.stringify({ input: chooseExample(file, schema) });
}

/** Says where the endpoint is and how to call it. */
export function describeEndpoint(
  endpoint: BannerEndpoint,
  { key, url }: Pick<BannerOptions, 'key' | 'url'>,
): string {
  const { endpointId, file, isServed } = endpoint;
  const place = relative(process.cwd(), file);
  const state = isServed ? '' : '  (no worker, see the log)';
  const address = url + fillPath(JOB_ROUTES.runJobSync, { endpoint: endpointId });
  const request = curlRequest(address, endpoint, key);
  return `${endpointId}  ${place}${state}\n  ${request}`;
}

function curlRequest(url: string, endpoint: BannerEndpoint, key: string | undefined): string {
  const body = showExample(endpoint);
  const parts = ['curl -s', url, "-H 'Content-Type: application/json'", ...keyHeader(key)];
  return [...parts, '-d', quoteWord(body)].join(' ');
}

function streamCommand(endpoint: BannerEndpoint, { key, url }: BannerOptions): string {
  const { endpointId } = endpoint;
  const path = fillPath(JOB_ROUTES.runJob, { endpoint: endpointId });
  const submit = curlRequest(url + path, endpoint, key);
  const takeId = String.raw`sed 's/.*"id":"\([^"]*\)".*/\1/'`;
  const stream = fillPath(JOB_ROUTES.streamJob, { endpoint: endpointId, job: 'JOB' });
  const address = `"${url}${stream.replace(/JOB$/, () => `$(${submit} | ${takeId})`)}"`;
  return ["curl -sN -H 'Accept: text/event-stream'", ...keyHeader(key), address].join(' ');
}

function keyHeader(key: string | undefined): string[] {
  return key === undefined ? [] : [`-H 'Authorization: Bearer ${key}'`];
}

// Builds the addresses for a RunPod worker from its endpoint's URL templates: fills placeholders
// and adds parameters.

interface RunPodTemplates {
  /**
   * `$ID` is the worker. With `/job-take-batch/` or `/job-stop/` in place of `/job-take/` it serves
   * further operations.
   */
  take: string;
  /** `$ID` is the job. */
  done: string;
  /** `$ID` is the job. Default: derived from `done`. */
  stream?: string | undefined;
  ping?: string | undefined;
}

export interface RunPodAddressOptions {
  templates: RunPodTemplates;
  /** ID of the pod, which is the worker's ID for the platform. */
  podId: string;
  /** For the placeholder `$RUNPOD_GPU_TYPE_ID`, which otherwise stays. */
  gpuTypeId?: string | undefined;
}

type QueryParameters = readonly (readonly [name: string, value: string])[];

const TAKE_PATH = '/job-take/';

export class RunPodAddresses {
  readonly #templates: RunPodTemplates;
  readonly #options: RunPodAddressOptions;

  /** @throws TypeError if a template is not an http or https URL */
  constructor(options: RunPodAddressOptions) {
    this.#options = options;
    const { done, ping, stream, take } = options.templates;
    const derived = replaceInPath(done, '/job-done/', '/job-stream/');
    this.#templates = { take, done, ping, stream: stream ?? derived };
    for (const [name, template] of Object.entries(this.#templates)) {
      if (template !== undefined) checkTemplate(name, template);
    }
  }

  /** Takes one job, or an array of at most `max`. */
  take(max: number, isBusy: boolean): string {
    const busy = ['job_in_progress', isBusy ? '1' : '0'] as const;
    const { take } = this.#templates;
    const batch = max > 1 ? replaceInPath(take, TAKE_PATH, '/job-take-batch/') : undefined;
    if (batch === undefined) return this.#ofWorker(take, [busy]);
    return this.#ofWorker(batch, [['batch_size', String(max)], busy]);
  }

  /** Undefined if the template does not reveal it. */
  get stop(): string | undefined {
    const stop = replaceInPath(this.#templates.take, TAKE_PATH, '/job-stop/');
    return stop === undefined ? undefined : this.#ofWorker(stop, []);
  }

  done(jobId: string, query: QueryParameters): string {
    return this.#ofJob(this.#templates.done, jobId, query);
  }

  /** Undefined without a way to stream. */
  stream(jobId: string, query: QueryParameters): string | undefined {
    const { stream } = this.#templates;
    return stream === undefined ? undefined : this.#ofJob(stream, jobId, query);
  }

  ping(query: QueryParameters): string | undefined {
    const { ping } = this.#templates;
    return ping === undefined ? undefined : this.#ofWorker(ping, query);
  }

  #ofWorker(template: string, query: QueryParameters): string {
    return addQuery(this.#fill(template, this.#options.podId), query);
  }

  #ofJob(template: string, jobId: string, query: QueryParameters): string {
    return addQuery(this.#fill(template, jobId), query);
  }

  /** Fills both placeholders everywhere, though the platform need not use both everywhere. */
  #fill(template: string, id: string): string {
    const { gpuTypeId, podId } = this.#options;
    const filled = template
      .replaceAll('$RUNPOD_POD_ID', () => encodeURIComponent(podId))
      .replaceAll('$ID', () => encodeURIComponent(id));
    if (gpuTypeId === undefined) return filled;
    return filled.replaceAll('$RUNPOD_GPU_TYPE_ID', () => encodeURIComponent(gpuTypeId));
  }
}

/** A template may have a query, none, or a `?` at its end. */
function addQuery(url: string, query: QueryParameters): string {
  if (query.length === 0) return url;
  const text = query.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
  if (!url.includes('?')) return `${url}?${text}`;
  return /[?&]$/.test(url) ? `${url}${text}` : `${url}&${text}`;
}

/** Undefined if the path does not contain this part; the query is not searched. */
function replaceInPath(template: string, part: string, other: string): string | undefined {
  const [path = '', ...query] = template.split('?');
  if (!path.includes(part)) return undefined;
  return [path.replaceAll(part, other), ...query].join('?');
}

function checkTemplate(name: string, template: string): void {
  const protocol = URL.canParse(template) ? new URL(template).protocol : undefined;
  if (protocol === 'http:' || protocol === 'https:') return;
  throw new TypeError(`the ${name} address must be an http or https URL: ${template}`);
}

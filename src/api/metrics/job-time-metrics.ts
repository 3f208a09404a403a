// Writes the histograms of jobs' times in Prometheus' text format: prom-client cannot take counts that are kept elsewhere.
import { type EndpointTimes, TIME_BUCKETS_S, type TimeCounts } from '../../queue/time/job-times.ts';

const HISTOGRAMS = [
  {
    name: 'millrace_job_queue_wait_seconds',
    help: 'Time from the moment from which a job may start to the lease of its attempt, since the start of the platform.',
    kind: 'wait',
  },
  {
    name: 'millrace_job_execution_seconds',
    help: 'Run time of the last attempt of each job that ended, since the start of the platform.',
    kind: 'execution',
  },
] as const;

/** Ends with a line feed. */
export function formatJobTimes(times: ReadonlyMap<string, Readonly<EndpointTimes>>): string {
  const lines = HISTOGRAMS.flatMap(({ help, kind, name }) => [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} histogram`,
    ...[...times].flatMap(([endpoint, of]) => formatHistogram(name, endpoint, of[kind])),
  ]);
  return `${lines.join('\n')}\n`;
}

function formatHistogram(
  name: string,
  endpoint: string,
  { counts, sumSeconds }: Readonly<TimeCounts>,
): string[] {
  const label = `endpoint="${escapeLabel(endpoint)}"`;
  let total = 0;
  const buckets = counts.map((count, index) => {
    total += count;
    return `${name}_bucket{${label},le="${TIME_BUCKETS_S[index] ?? '+Inf'}"} ${total}`;
  });
  return [...buckets, `${name}_sum{${label}} ${sumSeconds}`, `${name}_count{${label}} ${total}`];
}

function escapeLabel(text: string): string {
  return text.replaceAll(/[\\"]/g, '\\$&').replaceAll('\n', '\\n');
}

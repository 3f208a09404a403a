// Connects to the platform under test and runs the checks against it.
import type { Log } from '../../base/log.ts';
import { createClient } from '../../client.ts';
import { type CheckResult, runConformanceChecks } from '../../conformance/checks.ts';
import { CommandError } from '../command.ts';
import { UsageError } from '../options.ts';
import { throughProxy } from '../resources/client-options.ts';
import { openLink } from '../worker/platform-link.ts';
import type { PlatformValues } from './conformance.ts';
import { chooseAreas } from './conformance-areas.ts';

interface PlatformUnderTest {
  values: PlatformValues;
  log: Log;
  onRow: (row: CheckResult) => void;
}

interface PlatformAddress {
  url: string;
  endpoint: string;
  key: string;
  jobsUrl: string;
  jobsKey: string;
}

/** @throws UsageError, CommandError if no platform answers */
export async function checkPlatform({
  log,
  onRow,
  values,
}: PlatformUnderTest): Promise<CheckResult[]> {
  const place = readAddress(values);
  if (values.protocol === 'runpod') {
    const { RunPodProbe } = await import('../../conformance/runpod/platform-checks.ts');
    const { runPodPlatformChecks } = await import('../../conformance/runpod/platform-checks.ts');
    const checks = chooseAreas(runPodPlatformChecks, values.only);
    const probe = new RunPodProbe(place);
    await probe.checkReachable().catch(rejectSilence);
    return runConformanceChecks(checks, probe, onRow);
  }
  const { platformChecks } = await import('../../conformance/platform/platform-checks.ts');
  const checks = chooseAreas(platformChecks, values.only);
  const { endpoint, jobsKey, jobsUrl, url } = place;
  const client = createClient({ url: jobsUrl, endpoint, key: jobsKey, ...throughProxy(jobsUrl) });
  await client.health().catch(rejectSilence);
  const rest = { ca: undefined, clientCert: undefined, clientKey: undefined };
  const unused = { stateDir: undefined, workerId: undefined, runpodJoinText: false };
  const target = { url, endpoint, link: values.link, ...rest, ...unused };
  const link = await openLink({ ...target, key: place.key }, log);
  const wrongKeyLink = await openLink({ ...target, key: `mr_${'x'.repeat(43)}` }, log);
  const terms = { leaseMs: 15_000, renewEveryMs: 5_000, takeWaitMs: 20_000 };
  const stage = { link, wrongKeyLink, client, terms, submitted: [], workers: [] };
  try {
    return await runConformanceChecks(checks, stage, onRow);
  } finally {
    await link.close();
    await wrongKeyLink.close();
  }
}

function rejectSilence(error: unknown): never {
  const reason = error instanceof Error ? error.message : String(error);
  throw new CommandError(`the job API does not answer: ${reason}`);
}

function readAddress(values: PlatformValues): PlatformAddress {
  const { endpoint, key, url } = values;
  const jobsUrl = values.jobsUrl ?? url;
  if (!/^https?:/i.test(jobsUrl)) throw new UsageError('--jobs-url URL is required with gRPC');
  return { url, endpoint, key, jobsUrl, jobsKey: values.jobsKey ?? key };
}

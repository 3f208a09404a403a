// Opens the link to the platform, for worker processes and their supervisor. Only this file chooses
// the carrier, and it loads no other one.
import type { Log } from '../../base/log.ts';
import { readProxies } from '../../base/net/outgoing-proxy.ts';
import type { WorkerLink } from '../../wire/link/worker-link.ts';
import { inheritEnvironment } from '../config.ts';
import { CertificateFiles, readCertificates, readKeyPair } from '../options/certificates.ts';
import { UsageError } from '../options.ts';
import { type RunPodValues, readRunPodAddresses, readRunPodKey } from './runpod.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** The URL is empty if RunPod's environment names the addresses. */
type LinkValues = RunPodValues &
  Pick<WorkerFlags, 'url' | 'link' | 'endpoint' | 'ca' | 'clientCert' | 'clientKey'>;

interface PlatformLink extends WorkerLink {
  /**
   * Reports that the worker failed a check and exits without a job, for platforms that accept such
   * reports.
   */
  reportUnfit?(check: string, reason: string): Promise<void>;
  /** Ends open calls; later calls fail. */
  close(): Promise<void>;
}

type Carrier = 'http' | 'grpc' | 'runpod';

interface Tls {
  ca?: string;
  cert?: string;
  key?: string;
}

/** Plans the link from the options, without opening it. @throws UsageError */
export function planLink(values: LinkValues): { carrier: Carrier; tls: Tls | undefined } {
  const carrier = chooseCarrier(values);
  if (carrier === 'runpod') {
    readRunPodAddresses(values);
    readRunPodKey(values);
  }
  const tls = readTls(values);
  // The key would be sent unencrypted although the user gave TLS files.
  const [plain] = /^(http|grpc)(?=:)/i.exec(values.url) ?? [];
  if (tls && plain !== undefined) {
    const secure = `${plain}s`.toLowerCase();
    throw new UsageError(`--ca and --client-cert need TLS; --url must be an ${secure} URL`);
  }
  return { carrier, tls };
}

/** @throws UsageError */
export async function openLink(values: LinkValues, log: Log): Promise<PlatformLink> {
  const { endpoint: endpointId, key, url } = values;
  const { ca, clientCert, clientKey } = values;
  const files = new CertificateFiles([ca, clientCert, clientKey], log);
  const { carrier, tls } = planLink(values);
  if (carrier === 'runpod') {
    const { openRunPodLink } = await import('./runpod.ts');
    return openRunPodLink(values, log);
  }
  const chooseProxy = readProxies(inheritEnvironment({}));
  const options = { url, endpointId, key, log, chooseProxy };
  const open =
    carrier === 'grpc'
      ? (await import('../../transport/grpc/grpc-link.ts')).createGrpcLink
      : (await import('../../transport/http-link.ts')).createHttpLink;
  try {
    if (!tls) return open(options);
    let current = tls;
    const link = open({ ...options, tls: () => current });
    const close = link.close.bind(link);
    files.watch(() => {
      const renewed = readTls(values) ?? tls;
      process.getBuiltinModule('node:tls').createSecureContext(renewed);
      current = renewed;
    });
    return Object.assign(link, {
      close() {
        files.stop();
        return close();
      },
    });
  } catch (error) {
    throw new UsageError(`--url: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** The URL's scheme decides, and `--link` if both carriers use the scheme. */
function chooseCarrier({ link, url }: LinkValues): Carrier {
  if (url === '') return 'runpod';
  const [, scheme] = /^(https?|grpcs?):\/\//i.exec(url) ?? [];
  if (scheme === undefined || !URL.parse(url)?.hostname) {
    throw new UsageError(
      `--url: must be an http, https, grpc or grpcs URL, got ${JSON.stringify(url)}`,
    );
  }
  if (!/^grpc/i.test(scheme)) return link ?? 'http';
  if (link === 'http')
    throw new UsageError(`--link http does not match --url, which is a ${scheme} URL`);
  return 'grpc';
}

/** @throws UsageError */
function readTls({ ca, clientCert, clientKey }: LinkValues): Tls | undefined {
  const tls: Tls = {};
  if (ca !== undefined) tls.ca = readCertificates('--ca', ca);
  if (clientCert !== undefined && clientKey !== undefined) {
    const pair = readKeyPair(
      { option: '--client-cert', path: clientCert },
      { option: '--client-key', path: clientKey },
    );
    Object.assign(tls, pair);
  }
  return Object.keys(tls).length === 0 ? undefined : tls;
}

// The flags of HTTPS, and the files that they name.
import type { PlatformTls } from '../../platform/platform-options.ts';
import { text, UsageError } from '../options.ts';
import { readKeyPair } from './pem-file.ts';

export const tlsOptions = {
  tlsCert: text({
    placeholder: 'FILE',
    env: 'MILLRACE_TLS_CERT',
    help: 'PEM file of the TLS certificate; serve HTTPS; needs --tls-key; both files are read again when they change',
  }),
  tlsKey: text({
    placeholder: 'FILE',
    env: 'MILLRACE_TLS_KEY',
    help: 'PEM file of the private key of --tls-cert',
  }),
};

interface TlsValues {
  tlsCert: string | undefined;
  tlsKey: string | undefined;
}

/** @throws UsageError */
export function readTls(values: TlsValues): PlatformTls | undefined {
  const { tlsCert, tlsKey } = values;
  if (tlsCert === undefined && tlsKey === undefined) return undefined;
  if (tlsCert === undefined) throw new UsageError('--tls-key needs --tls-cert');
  if (tlsKey === undefined) throw new UsageError('--tls-cert needs --tls-key');
  const pair = readKeyPair(
    { option: '--tls-cert', path: tlsCert },
    { option: '--tls-key', path: tlsKey },
  );
  return { ...pair, keyFile: tlsKey };
}

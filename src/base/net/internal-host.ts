// Computes the host names at which pods of one user reach each other.
import { hash } from 'node:crypto';

const DOMAIN = 'millrace.internal';
/** Longest label of a host name (RFC 1123), characters. */
const MAX_LABEL = 63;
const DIGEST_LENGTH = 12;

/**
 * Returns a valid host name for any pod ID: labels contain only letters, digits and hyphens. If
 * another ID could have the same label, a digest is appended; IDs that the platform creates never
 * need one.
 */
export function nameInternalHost(podId: string): string {
  const label = podId
    .toLowerCase()
    .replaceAll(/[^a-z0-9]/g, '-')
    .replaceAll(/^-+|-+$/g, '');
  const isUnique = /^pod_[a-z0-9-]*[a-z0-9]$/.test(podId) && label.length <= MAX_LABEL;
  return `${isUnique ? label : addDigest(label, podId)}.${DOMAIN}`;
}

function addDigest(label: string, podId: string): string {
  const digest = hash('sha256', podId, 'hex').slice(0, DIGEST_LENGTH);
  const head = label.slice(0, MAX_LABEL - DIGEST_LENGTH - 1).replace(/-+$/, '');
  return head === '' ? digest : `${head}-${digest}`;
}

// The host names by which pods of one user reach one another.
import { hash } from 'node:crypto';

const DOMAIN = 'millrace.internal';
/** Of one label of a host name (RFC 1123), characters. */
const MAX_LABEL = 63;
const DIGEST_LENGTH = 12;

/**
 * A valid host name for any pod ID: a label has only letters, digits and hyphens. An ID that could share
 * its label with another one gets a digest behind it; IDs that the platform makes cannot.
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

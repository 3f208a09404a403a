// The endpoints and pods that mount a volume: as links, and as the reason why it cannot be deleted.
import type { NetworkVolumeRecord } from '../../../../src/client.ts';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from '../endpoint/frame.tsx';

type Use = NetworkVolumeRecord['uses'][number];
type UsedVolume = Pick<NetworkVolumeRecord, 'useCount' | 'uses'>;

/** Uses that a cell or a sentence names. */
const MAX_NAMED = 3;

export function Uses({ volume: { useCount, uses } }: { volume: UsedVolume }) {
  const named = uses.slice(0, MAX_NAMED);
  const more = useCount - named.length;
  if (useCount === 0) return <>–</>;
  return (
    <>
      {named.map((use, index) => (
        <span key={use.id}>
          {index > 0 && ', '}
          <a href={hrefOf(locate(use))}>{describe(use)}</a>
        </span>
      ))}
      {more > 0 && ` and ${more} more`}
    </>
  );
}

/** What a person should know before they delete the volume. */
export function explainDeletion({ useCount, uses }: UsedVolume): string {
  if (useCount === 0) return 'Nothing mounts it. Nothing can restore the content.';
  const named = uses.slice(0, MAX_NAMED);
  const more = useCount - named.length;
  const users = `${named.map(describe).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
  return `Mounted by ${users}. The platform refuses to delete the volume while something mounts it: first set another volume, or none, for the endpoints, and terminate the pods.`;
}

function describe({ endpointId, kind, name }: Use): string {
  return `${endpointId === null ? kind : 'worker'} ${name}`;
}

function locate({ id, kind }: Use): string {
  return kind === 'pod' ? `/pods/${id}` : pathOf(id);
}

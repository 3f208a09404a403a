// The network volumes: list, create, change and delete. Those of the operator's catalog file are fixed.
import type { NetworkVolumeRecord } from '../../../../src/client.ts';
import { NETWORK_VOLUME_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { CreateButton } from '../../parts/forms/create-button.tsx';
import { useOpenedForm } from '../../parts/forms/opened-form.ts';
import { ResourceForm } from '../../parts/forms/resource-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { List } from '../../parts/list/list.tsx';
import { RecordName } from '../../parts/list/record-name.tsx';
import { RowActions } from '../../parts/list/row-actions.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { explainDeletion, Uses } from './uses.tsx';

const COLUMNS = [
  { name: 'Volume' },
  { name: 'Size, GB', isNumber: true },
  { name: 'Data center' },
  { name: 'Used by' },
  { name: 'Created' },
  { name: 'Actions', isHidden: true },
];

export function Page() {
  const polled = usePolled({
    key: 'network volumes',
    load: async (signal) => (await platform.networkVolumes.page({ limit: 1_000, signal })).items,
    everyMs: 10_000,
  });
  const { reload } = polled;
  const { form, open, opened } = useOpenedForm<NetworkVolumeRecord>(reload);
  return (
    <>
      <PageHead title="Network volumes">
        {may('pods:write') && (
          <CreateButton
            label="Create a volume"
            isOpen={opened === 'new'}
            onOpen={() => open('new')}
          />
        )}
      </PageHead>
      {opened && (
        <ResourceForm
          key={opened === 'new' ? opened : opened.id}
          noun="network volume"
          fields={NETWORK_VOLUME_FIELDS}
          target={platform.networkVolumes}
          {...{ opened, ...form }}
        />
      )}
      <List
        label="Network volumes"
        columns={COLUMNS}
        polled={polled}
        row={(volume) => (
          <Row key={volume.id} volume={volume} reload={reload} onEdit={() => open(volume)} />
        )}
        empty={
          <Empty
            title="No network volumes yet"
            command="millrace network-volumes create --name models --size 200"
          >
            A network volume is storage that pods mount and that outlives them. Create one:
          </Empty>
        }
      />
    </>
  );
}

interface RowProps {
  volume: NetworkVolumeRecord;
  reload: () => void;
  onEdit: () => void;
}

function Row({ onEdit, reload, volume }: RowProps) {
  const { createdAt, dataCenterId, declared, id, name, size } = volume;
  const remove = async () => {
    await platform.networkVolumes.delete(id);
    reload();
  };
  return (
    <tr>
      <RecordName id={id} name={name} />
      <td class="number">{size ?? '–'}</td>
      <td>{dataCenterId}</td>
      <td>
        <Uses volume={volume} />
      </td>
      <td class="nowrap">{createdAt ? <Time at={createdAt} /> : '–'}</td>
      <RowActions
        {...{ kind: 'volume', name, onEdit, lost: 'with its content', isFixed: declared }}
        isAllowed={may('pods:write')}
        remove={remove}
      >
        {explainDeletion(volume)}
      </RowActions>
    </tr>
  );
}

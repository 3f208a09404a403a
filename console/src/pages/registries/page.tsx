// The logins of registries: list, create, change and delete. No answer of the platform has a secret.
import type { RegistryRecord } from '../../../../src/client.ts';
import { REGISTRY_FIELDS } from '../../../../src/wire/resources/fields.ts';
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

const COLUMNS = [
  { name: 'Registry' },
  { name: 'Server' },
  { name: 'User' },
  { name: 'Created' },
  { name: 'Actions', isHidden: true },
];

export function Page() {
  const polled = usePolled({
    key: 'registries',
    load: async (signal) => (await platform.registries.page({ limit: 1_000, signal })).items,
    everyMs: 10_000,
  });
  const { reload } = polled;
  const { form, open, opened } = useOpenedForm<RegistryRecord>(reload);
  return (
    <>
      <PageHead title="Registries">
        {may('pods:write') && (
          <CreateButton
            label="Create a login"
            isOpen={opened === 'new'}
            onOpen={() => open('new')}
          />
        )}
      </PageHead>
      {opened && (
        <ResourceForm
          key={opened === 'new' ? opened : opened.id}
          noun="registry login"
          fields={REGISTRY_FIELDS}
          target={platform.registries}
          {...{ opened, ...form }}
        />
      )}
      <List
        label="Registries"
        columns={COLUMNS}
        polled={polled}
        row={(registry) => (
          <Row
            key={registry.id}
            registry={registry}
            reload={reload}
            onEdit={() => open(registry)}
          />
        )}
        empty={
          <Empty title="No registries yet" command="millrace registries create --help">
            A registry is a login with which the engine pulls private images. Create one:
          </Empty>
        }
      />
    </>
  );
}

interface RowProps {
  registry: RegistryRecord;
  reload: () => void;
  onEdit: () => void;
}

function Row({ onEdit, registry, reload }: RowProps) {
  const { createdAt, declared, id, name, server, username } = registry;
  const remove = async () => {
    await platform.registries.delete(id);
    reload();
  };
  return (
    <tr>
      <RecordName id={id} name={name} />
      <td class="mono">{server}</td>
      <td>{username}</td>
      <td class="nowrap">{createdAt ? <Time at={createdAt} /> : '–'}</td>
      <RowActions
        {...{ kind: 'registry', name, onEdit, isFixed: declared }}
        isAllowed={may('pods:write')}
        remove={remove}
      >
        The platform refuses this while a pod or a template uses the registry.
      </RowActions>
    </tr>
  );
}

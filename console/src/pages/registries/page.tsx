// The logins of registries: list, create, change and delete. No answer of the platform has a secret.
import { REGISTRY_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { ResourceForm } from '../../parts/forms/resource-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { CreatedCell } from '../../parts/list/record-cells.tsx';
import { ResourceList } from '../../parts/list/resource-list.tsx';
import { platform } from '../../platform/calls.ts';
import { may } from '../../platform/session.ts';

export function Page() {
  return (
    <ResourceList
      title="Registries"
      kind="login"
      resource={platform.registries}
      mayChange={() => may('pods:write')}
      form={(props) => (
        <ResourceForm
          noun="registry login"
          fields={REGISTRY_FIELDS}
          target={platform.registries}
          {...props}
        />
      )}
      columns={[{ name: 'Server' }, { name: 'User' }, { name: 'Created' }]}
      cells={({ createdAt, server, username }) => (
        <>
          <td class="mono">{server}</td>
          <td>{username}</td>
          <CreatedCell at={createdAt} />
        </>
      )}
      deletion={() => 'The platform refuses this while a pod or a template uses the login.'}
      empty={
        <Empty title="No registries yet" command="millrace registries create --help">
          A registry is a login with which the engine pulls private images. Create one:
        </Empty>
      }
    />
  );
}

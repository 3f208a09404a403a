// The budgets: what is spent of each, create, change and delete.
import type { BudgetRecord } from '../../../../src/client.ts';
import { BUDGET_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { Badge, type Tone } from '../../parts/badge.tsx';
import { Meter } from '../../parts/figures/meter.tsx';
import { CreateButton } from '../../parts/forms/create-button.tsx';
import { useOpenedForm } from '../../parts/forms/opened-form.ts';
import { ResourceForm } from '../../parts/forms/resource-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { List } from '../../parts/list/list.tsx';
import { RecordName } from '../../parts/list/record-name.tsx';
import { RowActions } from '../../parts/list/row-actions.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { isOperator, may } from '../../platform/session.ts';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from '../endpoint/frame.tsx';

const COLUMNS = [
  { name: 'Budget' },
  { name: 'State' },
  { name: 'Of' },
  { name: 'User' },
  { name: 'Period' },
  { name: 'Spent, USD' },
  { name: 'Actions', isHidden: true },
];

const STATES: Readonly<Record<BudgetRecord['state'], { text: string; tone: Tone; title: string }>> =
  {
    ok: { text: 'OK', tone: 'good', title: 'Pods and workers start' },
    warning: { text: 'Warning', tone: 'warn', title: 'The budget is nearly used up' },
    used_up: {
      text: 'Used up',
      tone: 'bad',
      title:
        'No new pods or workers start, and no volumes are created, before the next period. Running ones continue',
    },
  };

const { userId: _user, ...OWN_FIELDS } = BUDGET_FIELDS;
// The operator cannot list the endpoints of others.
const { refersTo: _endpoints, ...endpointId } = BUDGET_FIELDS.endpointId;
const ALL_FIELDS = { ...BUDGET_FIELDS, endpointId };

export function Budgets() {
  // The operator sees and sets the budgets of all users.
  const actsForAll = isOperator() && may('admin');
  const polled = usePolled({
    key: 'budgets',
    load: async (signal) => {
      const listed = actsForAll ? platform.budgets.ofUser('*') : platform.budgets;
      return (await listed.page({ limit: 1_000, signal })).items;
    },
    everyMs: 10_000,
  });
  const { reload } = polled;
  const { form, open, opened } = useOpenedForm<BudgetRecord>(reload);
  return (
    <section aria-label="Budgets">
      <div class="chart-head">
        <h2>Budgets</h2>
        {may('endpoints:write') && (
          <CreateButton
            label="Create a budget"
            isOpen={opened === 'new'}
            onOpen={() => open('new')}
          />
        )}
      </div>
      {opened && (
        <ResourceForm
          key={opened === 'new' ? opened : opened.id}
          noun="budget"
          fields={actsForAll ? ALL_FIELDS : OWN_FIELDS}
          target={platform.budgets}
          {...{ opened, ...form }}
        />
      )}
      <List
        label="Budgets"
        columns={COLUMNS}
        polled={polled}
        row={(budget) => (
          <Row key={budget.id} budget={budget} reload={reload} onEdit={() => open(budget)} />
        )}
        empty={
          <Empty title="No budgets yet" command="millrace budgets create --name month --limit 500">
            When a budget is exhausted, no new pods or workers start. Create one:
          </Empty>
        }
      />
    </section>
  );
}

interface RowProps {
  budget: BudgetRecord;
  reload: () => void;
  onEdit: () => void;
}

function Row({ budget, onEdit, reload }: RowProps) {
  const { endpointId, endpointName, id, limit, name, period, setBy, spent, state, userId } = budget;
  const mayChange = may('endpoints:write') && (setBy === 'user' || isOperator());
  const remove = async () => {
    await platform.budgets.delete(id);
    reload();
  };
  return (
    <tr>
      <RecordName id={id} name={name} />
      <td>
        <Badge {...STATES[state]} />
      </td>
      <td>
        {endpointId ? (
          <a href={hrefOf(pathOf(endpointId))} title={endpointId}>
            {endpointName ?? endpointId}
          </a>
        ) : (
          'All pods, endpoints and volumes'
        )}
      </td>
      <td>
        {userId}
        {setBy === 'operator' && <small>set by the operator</small>}
      </td>
      <td>{period === 'day' ? 'Day (UTC)' : 'Month (UTC)'}</td>
      <td title={`${spent} USD`}>
        <Meter label={`Spent of ${name}`} used={Number(spent)} limit={limit} />
      </td>
      <RowActions {...{ kind: 'budget', name, onEdit }} isAllowed={mayChange} remove={remove}>
        Pods and workers that it holds back can start again.
      </RowActions>
    </tr>
  );
}

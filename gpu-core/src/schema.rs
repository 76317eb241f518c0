//! JSON Schema of all that is written down for others, as it is checked in. `UPDATE_EXPECT=1` writes the files anew.

use expect_test::{ExpectFile, expect_file};
use schemars::{JsonSchema, schema_for};

use crate::{Change, Inventory, PciInventory, Plan, Usage};

#[track_caller]
fn check<T: JsonSchema>(expected: &ExpectFile) {
    let schema = serde_json::to_string_pretty(&schema_for!(T)).expect("a schema is JSON");
    expected.assert_eq(&(schema + "\n"));
}

#[test]
fn schemas_are_those_that_are_checked_in() {
    check::<Inventory>(&expect_file!["../schema/inventory.json"]);
    check::<Change>(&expect_file!["../schema/change.json"]);
    check::<Plan>(&expect_file!["../schema/plan.json"]);
    check::<Usage>(&expect_file!["../schema/usage.json"]);
    check::<PciInventory>(&expect_file!["../schema/pci-inventory.json"]);
    #[cfg(feature = "ownership")]
    check::<crate::ownership::Owners>(&expect_file!["../schema/owners.json"]);
}

//! Who changes settings changes those that he has seen.

use sluice_meta::{Meta, OpenError, schema::VolumeFormat};
use sluice_types::Time;

#[test]
fn settings_of_others_are_not_replaced_unseen() {
    let store = crate::fresh();
    let (engine, now) = (store.open(), Time::default());
    let named = |name: &str| VolumeFormat { name: name.into(), ..VolumeFormat::default() };
    let first = named("vol");
    Meta::format(engine.as_ref(), &first, now).unwrap();
    let again = Meta::format(engine.as_ref(), &named("vol"), now);
    assert!(matches!(&again, Err(OpenError::Occupied(name)) if name == "vol"), "{again:?}");
    let limited = |capacity| VolumeFormat { capacity, ..first.clone() };
    Meta::reformat(engine.as_ref(), &first, &limited(1), now).unwrap();
    let late = Meta::reformat(engine.as_ref(), &first, &limited(2), now);
    assert!(matches!(&late, Err(OpenError::Changed(_))), "{late:?}");
    Meta::reformat(engine.as_ref(), &limited(1), &limited(3), now).unwrap();
    let other = Meta::reformat(engine.as_ref(), &limited(3), &named("other"), now);
    assert!(matches!(&other, Err(OpenError::Occupied(_))), "{other:?}");
    assert_eq!(Meta::load_format(engine.as_ref()).unwrap().unwrap().capacity, 3);
}

//! A written log is read back unchanged, and reading any other input never panics.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::{Origin, PacketFile};

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sojourn-packets-{}-{name}", std::process::id()))
}

fn origin() -> Origin {
    Origin { instrument: "0.1.0".to_owned(), profile: "debug".to_owned(), ..Origin::default() }
}

fn pipes() -> Vec<String> {
    (0..300).map(|number| format!("pipe {number}")).collect()
}

fn packet(number: u64, head_bytes: u8) -> Packet {
    let odd = number % 2 == 1;
    Packet {
        block: 7 - 8 * i32::from(odd),
        number,
        copy_of: odd.then_some(number / 2),
        direction: DIRECTIONS[usize::from(odd)],
        pipe: odd.then_some((number % 300) as u16),
        flow: number.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        frame_bytes: 64 + number as u32,
        head: Head::of(&(0..head_bytes).collect::<Vec<u8>>()),
        arrival: Stamp { at: Time(i64::MAX - number as i64), source: Source::Kernel },
        entered: Time(number as i64),
        disposition: DISPOSITIONS[number as usize % 3],
        cause: CAUSES[number as usize % CAUSES.len()],
        drawn: odd.then_some(Nanos(-5)),
        link_left: odd.then_some(Time(1)),
        intended: odd.then_some(Time(2)),
        departure: (!odd).then_some(Time(3)),
        is_marked: odd,
        flipped: 3,
        is_reordered: !odd,
        queue_slots: 9,
        queue_bytes: 1 << 40,
        class: number.wrapping_mul(31),
    }
}

fn write(folder: &Path, batches: &[Vec<Packet>]) -> PathBuf {
    let _ = fs::remove_dir_all(folder);
    let mut file = PacketFile::create(folder, ("d", 3), pipes(), &origin()).unwrap();
    for batch in batches {
        file.write(batch).unwrap();
    }
    file.finish().unwrap();
    folder.join("packets-d-003.arrow")
}

fn read(path: &Path) -> Result<Vec<Packet>, ReadError> {
    let mut rows = Vec::new();
    let mut reader = PacketReader::open(path, pipes())?;
    while reader.next(&mut rows)? {}
    Ok(rows)
}

#[test]
fn records_are_read_as_written() {
    let folder = path("again");
    let rows: Vec<_> = (0..1000).map(|number| packet(number, (number % 129) as u8)).collect();
    let file = write(&folder, &[rows[..10].to_vec(), rows[10..].to_vec()]);
    assert_eq!(read(&file).unwrap(), rows);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn wrong_table_and_unknown_pipe_are_reported() {
    let folder = path("told");
    let file = write(&folder, &[vec![packet(299, 0)]]);
    let mut reader = PacketReader::open(&file, vec!["forward".to_owned()]).unwrap();
    let told = reader.next(&mut Vec::new()).unwrap_err().to_string();
    assert!(told.ends_with("row 0: pipe \"pipe 299\" is not in the configuration"), "{told}");
    crate::StreamFolder::create(&folder, "d", 0, &origin()).unwrap();
    let told = read(&folder.join("sends-d-000.arrow")).unwrap_err().to_string();
    assert!(told.ends_with("expected the table packets"), "{told}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn log_of_an_earlier_version_is_refused_naming_the_missing_column() {
    let folder = path("earlier");
    let file = write(&folder, &[vec![packet(1, 0)]]);
    let mut stream = StreamReader::try_new(File::open(&file).unwrap(), None).unwrap();
    let batch = stream.next().unwrap().unwrap();
    let earlier = batch.project(&(0..batch.num_columns() - 1).collect::<Vec<_>>()).unwrap();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(File::create(&file).unwrap(), &earlier.schema()).unwrap();
    writer.write(&earlier).unwrap();
    writer.finish().unwrap();
    let told = read(&file).unwrap_err().to_string();
    assert!(told.ends_with("it has no column class"), "{told}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_log_with_the_former_names_of_columns_and_values_is_read_under_the_new_ones() {
    let folder = path("former");
    let rows: Vec<_> = (0..9).map(|number| packet(number, 0)).collect();
    let file = write(&folder, std::slice::from_ref(&rows));
    let batch = StreamReader::try_new(File::open(&file).unwrap(), None).unwrap().next().unwrap().unwrap();
    let schema = batch.schema();
    let former = |field: &Arc<arrow_schema::Field>| {
        let name = match field.name().as_str() {
            "disposition" => "fate",
            "class" => "lane",
            name => name,
        };
        Arc::new(field.as_ref().clone().with_name(name))
    };
    let fields: Vec<_> = schema.fields().iter().map(former).collect();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        if field.name() != "disposition" {
            return Arc::clone(column);
        }
        let names = Arc::new(StringArray::from_iter_values(["untouched", "sent", "lost"]));
        Arc::new(DictionaryArray::new(column.as_dictionary::<Int8Type>().keys().clone(), names)) as ArrayRef
    });
    let columns: Vec<_> = columns.collect();
    let schema = Arc::new(arrow_schema::Schema::new_with_metadata(fields, schema.metadata().clone()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(File::create(&file).unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&file).unwrap(), rows);
    fs::remove_dir_all(folder).unwrap();
}

proptest! {
    #[test]
    fn a_damaged_log_never_panics(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut: prop::sample::Index) {
        let folder = path("damaged");
        let file = write(&folder, &[(0..20).map(|number| packet(number, 20)).collect()]);
        let mut bytes = fs::read(&file).unwrap();
        for (place, value) in places {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let end = cut.index(bytes.len() * 4).min(bytes.len());
        fs::write(&file, &bytes[..end]).unwrap();
        let _ = read(&file);
        fs::remove_dir_all(folder).unwrap();
    }
}

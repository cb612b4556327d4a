#include "millstream/codec/csv.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  if (size == 0) return 0;
  CsvFormat format;  // the first byte of the input selects it
  format.header = (data[0] & 1) != 0;
  if ((data[0] & 2) != 0) format.delimiter = '\t';
  if ((data[0] & 4) != 0) format.comment = '#';
  if ((data[0] & 8) != 0) format.missing = (data[0] & 16) != 0 ? 0.5 : 1;
  format.mask = (data[0] & 32) != 0;
  if ((data[0] & 64) != 0) {
    format.fields = {{"x", {CsvRange{1, {}, 2}, 0}, true}, {"y", {-1}}, {"a"}};
    if ((data[0] & 128) != 0) format.fields.pop_back();
  }
  const auto parse = [&] {
    const auto bytes = fuzzed(data + 1, size - 1);
    const CsvDefects found = csv_defects(bytes, "fuzzed", format, 3);
    require(found.messages.size() <= 3);
    const CsvTable table = parse_csv(bytes, "fuzzed", format);
    require(found.messages.empty());
    require(table.rows > 0 && !table.columns.empty());
    for (const CsvColumn& column : table.columns) {
      const auto values =
          static_cast<std::size_t>(table.rows * column.shape.elements());
      require(column.integers.size() == (column.dtype == DType::kInt64 ? values : 0));
      require(column.reals.size() == (column.dtype == DType::kFloat64 ? values : 0));
      require(column.booleans.size() == (column.dtype == DType::kBool ? values : 0));
      require(column.present.size() == (format.mask ? values : 0));
    }
  };
  return accept_or_refuse([&] {
    try {
      parse();
    } catch (const ArgumentError&) {  // a column that the table does not have
      require(!format.fields.empty());
    }
  });
}

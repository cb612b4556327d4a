#include "millstream/codec/csv.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  if (size == 0) return 0;
  CsvFormat format;  // the first byte of the input selects it
  format.header = (data[0] & 1) != 0;
  if ((data[0] & 2) != 0) format.delimiter = '\t';
  return accept_or_refuse([&] {
    const auto bytes = fuzzed(data + 1, size - 1);
    const CsvDefects found = csv_defects(bytes, "fuzzed", format, 3);
    require(found.messages.size() <= 3);
    const CsvTable table = parse_csv(bytes, "fuzzed", format);
    require(found.messages.empty());
    require(table.rows > 0 && !table.columns.empty());
    for (const CsvColumn& column : table.columns) {
      const bool integers = column.dtype == DType::kInt64;
      const std::size_t rows = integers ? column.integers.size() : column.reals.size();
      require(static_cast<std::int64_t>(rows) == table.rows);
    }
  });
}

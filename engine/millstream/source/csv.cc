#include "millstream/source/csv.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"
#include "millstream/io/file.h"
#include "millstream/source/pack.h"

namespace millstream {
namespace {

/// Throws `DataError` for the first 64-bit integer that does not fit into 32 bits.
void check_narrow(const CsvTable& table, const std::string& path) {
  for (const CsvColumn& column : table.columns) {
    if (column.dtype != DType::kInt64) continue;
    const Column values = {column.dtype, column.shape,
                           const_cast<std::byte*>(column.data()), 0, nullptr};
    const std::int64_t elements = column.shape.elements();
    for (std::size_t i = 0; i < column.integers.size(); ++i) {
      if (std::in_range<std::int32_t>(column.integers[i])) continue;
      const auto at = static_cast<std::int64_t>(i);
      throw unfit({.file = path, .sample = at / elements, .field = column.name}, values,
                  values.data + at / elements * values.row_bytes(), at % elements,
                  DType::kInt32);
    }
  }
}

}  // namespace

ArraysSource csv_source(const std::filesystem::path& path, const CsvFormat& format,
                        bool narrow) {
  const File file(path);
  const auto table = std::make_shared<const CsvTable>(
      parse_csv(file.bytes(0, file.size()), path.string(), format));
  if (narrow) check_narrow(*table, path.string());
  std::vector<Array> arrays;
  std::set<std::string> names;
  const auto add = [&](const Field& field, const std::byte* data) {
    arrays.push_back({field, table->rows, data, byte_size(field), table});
    names.insert(field.name);
  };
  for (const CsvColumn& column : table->columns) {
    add({column.name, column.dtype, column.shape}, column.data());
  }
  for (const CsvColumn& column : table->columns) {
    if (!format.mask) break;
    const std::string name = column.name + "_present";
    if (names.contains(name)) {
      throw ArgumentError(
          {.file = path.string(),
           .field = name,
           .text = text("the mask of '", column.name, "' would be called '", name,
                        "', as another field is; give that field another name with "
                        "columns={name: column}")});
    }
    add({name, DType::kBool, column.shape},
        std::as_bytes(std::span(column.present)).data());
  }
  return packed(ArraysSource(std::move(arrays)));
}

}  // namespace millstream

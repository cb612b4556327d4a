#include "millstream/source/csv.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/io/file.h"

namespace millstream {

ArraysSource csv_source(const std::filesystem::path& path, const CsvFormat& format) {
  const File file(path);
  const auto table = std::make_shared<const CsvTable>(
      parse_csv(file.bytes(0, file.size()), path.string(), format));
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
  return ArraysSource(std::move(arrays));
}

}  // namespace millstream

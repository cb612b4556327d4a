#include "millstream/core/schema.h"

#include "millstream/core/error.h"

namespace millstream {

Field stacked(const Field& field, std::int64_t length) {
  std::vector<std::int64_t> extents = {length};
  const auto row = field.shape.extents();
  extents.insert(extents.end(), row.begin(), row.end());
  return {field.name, field.dtype, Shape(extents)};
}

std::string str(const Field& field) {
  return text(field.name, ": ", name(field.dtype), field.shape.str());
}

std::string str(const Schema& schema) {
  std::string fields;
  for (const Field& field : schema) {
    fields += (fields.empty() ? "" : ", ") + str(field);
  }
  return "{" + fields + "}";
}

int field_named(const Schema& schema, std::string_view name, std::string_view who) {
  std::string known;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name == name) return static_cast<int>(i);
    known += (i ? ", '" : "'") + schema[i].name + "'";
  }
  throw ArgumentError(text(who, ": there is no field '", name, "', only ", known));
}

}  // namespace millstream

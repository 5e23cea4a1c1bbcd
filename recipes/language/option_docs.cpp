#include "steelyard/recipes/language/option_docs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;

Json json_value(const YamlNode& node, const RecipeOption& option) {
  switch (option.kind) {
    case OptionKind::kInteger:
      return *parse_integer(node.text);
    case OptionKind::kNumber:
      return *parse_number(node.text);
    case OptionKind::kBoolean:
      return *parse_boolean(node.text);
    case OptionKind::kPair:
    case OptionKind::kList: {
      RecipeOption element = option;
      element.kind = OptionKind::kInteger;
      if (option.kind == OptionKind::kList) element = option.members.at(0);
      if (node.kind == YamlNode::Kind::kScalar) return json_value(node, element);
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(json_value(item, element));
      return list;
    }
    case OptionKind::kTable:
      return Json::object();
    default:
      return node.text;
  }
}

// Builds a schema; tables with a definition name are written once, under $defs.
class SchemaWriter {
 public:
  Json document(const RecipeOption& table, const std::string& title) {
    Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
    schema.update(table_schema(table));
    if (!definitions_.empty()) schema["$defs"] = definitions_;
    return schema;
  }

 private:
  Json option_schema(const RecipeOption& option) {
    Json schema = type_schema(option);
    if (!option.help.empty()) schema["description"] = option.help;
    if (option.default_yaml) {
      schema["default"] = json_value(parse_yaml_at(*option.default_yaml, option.name), option);
    }
    return schema;
  }

  Json type_schema(const RecipeOption& option) {
    switch (option.kind) {
      case OptionKind::kString: {
        Json schema{{"type", "string"}, {"minLength", option.may_be_empty ? 0 : 1}};
        if (!option.pattern.empty()) schema["pattern"] = "^(" + option.pattern + ")$";
        return schema;
      }
      case OptionKind::kInteger:
        return number_schema("integer", option);
      case OptionKind::kNumber:
        return number_schema("number", option);
      case OptionKind::kBoolean:
        return {{"type", "boolean"}};
      case OptionKind::kChoice:
        return {{"enum", option.choices}};
      case OptionKind::kPair: {
        const Json one = number_schema("integer", option);
        return {{"oneOf",
                 {one, {{"type", "array"}, {"items", one}, {"minItems", 2}, {"maxItems", 2}}}}};
      }
      case OptionKind::kList:
        if (!option.or_one) return list_schema(option);
        return {{"oneOf", {option_schema(option.members.at(0)), list_schema(option)}}};
      case OptionKind::kTable:
        return option.definition.empty() ? table_schema(option) : reference(option);
      case OptionKind::kChoiceOrTable:
        return {{"oneOf", {{{"enum", option.choices}}, table_schema(option)}}};
      case OptionKind::kChoiceOrList:
        return {{"oneOf", {{{"enum", option.choices}}, list_schema(option)}}};
    }
    return {};
  }

  Json list_schema(const RecipeOption& option) {
    return {{"type", "array"},
            {"items", option_schema(option.members.at(0))},
            {"minItems", option.min_items},
            {"maxItems", option.max_items}};
  }

  static Json number_schema(const char* type, const RecipeOption& option) {
    Json schema{{"type", type}};
    if (option.min) schema[option.above_min ? "exclusiveMinimum" : "minimum"] = *option.min;
    if (option.max) schema["maximum"] = *option.max;
    return schema;
  }

  Json reference(const RecipeOption& table) {
    if (written_.insert(table.definition).second) {
      Json schema = table_schema(table);  // may refer to itself
      definitions_[table.definition] = std::move(schema);
    }
    return {{"$ref", "#/$defs/" + table.definition}};
  }

  Json table_schema(const RecipeOption& table) {
    if (!table.cases) return object_schema(table.members, {});
    Json variants = Json::array();
    for (const OptionCase& c : table.cases->cases) variants.push_back(case_schema(table, c));
    if (const RecipeOption& key = discriminator(table); has_other_values(key)) {
      variants.push_back(schema_of_others(table));
    } else if (!key.required && !key.default_yaml) {
      std::vector<RecipeOption> members = table.members;
      std::erase_if(members, [&](const auto& m) { return m.name == table.discriminator; });
      variants.push_back(object_schema(members, {}));
    }
    return {{"oneOf", variants}};
  }

  // The alternative of the values that have no case.
  Json schema_of_others(const RecipeOption& table) {
    const std::vector<std::string> names = case_names(table);
    std::vector<RecipeOption> members = table.members;
    for (RecipeOption& member : members) {
      if (member.name != table.discriminator) continue;
      std::erase_if(member.choices, [&](const std::string& choice) {
        return std::find(names.begin(), names.end(), choice) != names.end();
      });
    }
    Json schema = object_schema(members, {});
    schema["properties"][table.discriminator]["not"] = {{"enum", names}};
    return schema;
  }

  static const RecipeOption& discriminator(const RecipeOption& table) {
    for (const RecipeOption& member : table.members) {
      if (member.name == table.discriminator) return member;
    }
    throw std::logic_error("[options] no key chooses the case");
  }

  // One alternative: the discriminator is fixed, and required unless this case is the default.
  Json case_schema(const RecipeOption& table, const OptionCase& c) {
    std::vector<RecipeOption> members = table.members;
    for (RecipeOption& member : members) {
      if (member.name != table.discriminator) continue;
      member.kind = OptionKind::kChoice;
      member.choices = {c.value};
      member.required = member.default_yaml != c.value;
      member.help = c.help;
      member.default_yaml.reset();
    }
    return object_schema(members, c.options);
  }

  Json object_schema(const std::vector<RecipeOption>& members,
                     const std::vector<RecipeOption>& more) {
    Json properties = Json::object();
    Json required = Json::array();
    for (const auto* options : {&members, &more}) {
      for (const RecipeOption& option : *options) {
        properties[option.name] = option_schema(option);
        if (option.required) required.push_back(option.name);
      }
    }
    Json schema{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
    if (!required.empty()) schema["required"] = required;
    return schema;
  }

  Json definitions_ = Json::object();
  std::set<std::string> written_;
};

// Sections of Markdown, a nested table after the table that names it.
class MarkdownWriter {
 public:
  std::string document(const RecipeOption& table) {
    section("The recipe", "", table);
    return out_;
  }

 private:
  struct Nested {
    std::string path;
    const RecipeOption* table;
  };

  void section(const std::string& title, const std::string& path, const RecipeOption& table) {
    out_ += "## " + title + "\n\n";
    if (!table.help.empty()) out_ += table.help + "\n\n";
    std::vector<Nested> nested;
    rows(path, table.members, nested);
    if (table.cases) {
      for (const OptionCase& c : table.cases->cases) {
        out_ += "With `" + table.discriminator + ": " + c.value + "`";
        out_ += (c.help.empty() ? "" : " (" + c.help + ")");
        out_ += c.options.empty() ? ": nothing more.\n\n" : ":\n\n";
        if (!c.options.empty()) rows(path, c.options, nested);
      }
    }
    for (const Nested& n : nested) nested_section(n);
  }

  void nested_section(const Nested& nested) {
    const std::string& definition = nested.table->definition;
    if (definition.empty()) {
      section("`" + nested.path + "`", nested.path, *nested.table);
    } else if (written_.insert(definition).second) {
      section("A " + definition, "", *nested.table);
    }
  }

  void rows(const std::string& path, const std::vector<RecipeOption>& options,
            std::vector<Nested>& nested) {
    out_ += "| key | value | default | meaning |\n|---|---|---|---|\n";
    for (const RecipeOption& option : options) {
      out_ += "|" + cell("`" + option.name + "`") + cell(value_words(option)) +
              cell(default_words(option)) + cell(option.help) + "\n";
      note_nested(path, option, nested);
    }
    out_ += "\n";
  }

  // A cell and its end. A bar ends a cell in code, too.
  static std::string cell(const std::string& text) {
    std::string escaped;
    for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
    return " " + escaped + " |";
  }

  static void note_nested(const std::string& path, const RecipeOption& option,
                          std::vector<Nested>& nested) {
    const std::string full = path.empty() ? option.name : path + "." + option.name;
    const bool table =
        option.kind == OptionKind::kTable || option.kind == OptionKind::kChoiceOrTable;
    if (table) nested.push_back({full, &option});
    if (option.kind == OptionKind::kList) {
      const RecipeOption& element = option.members.at(0);
      if (element.kind == OptionKind::kTable) nested.push_back({full + "[]", &element});
    }
  }

  static std::string value_words(const RecipeOption& option) {
    if (option.kind == OptionKind::kChoice && option.choices.empty()) return "one of those below";
    if (option.kind != OptionKind::kList) return describe_expectation(option);
    const RecipeOption& element = option.members.at(0);
    if (element.kind != OptionKind::kTable) {
      return (option.or_one ? value_words(element) + ", or list of: " : "list of: ") +
             value_words(element);
    }
    return "list of tables" + (element.definition.empty() ? "" : " (" + element.definition + "s)");
  }

  static std::string default_words(const RecipeOption& option) {
    if (option.required) return "required";
    return option.default_yaml ? "`" + *option.default_yaml + "`" : "none";
  }

  std::string out_;
  std::set<std::string> written_;
};

}  // namespace

std::string json_schema(const RecipeOption& table, const std::string& title) {
  return SchemaWriter().document(table, title).dump(2) + "\n";
}

std::string markdown(const RecipeOption& table) { return MarkdownWriter().document(table); }

}  // namespace steelyard
